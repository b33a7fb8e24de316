// std::latch, std::barrier, std::counting_semaphore, atomic waiting, std::async, promises: waiting that is not by locks, used rightly.
// ripstop: verdict none
// ripstop: build -latomic
#include <atomic>
#include <barrier>
#include <cstdio>
#include <future>
#include <latch>
#include <semaphore>
#include <thread>
#include <vector>

int main()
{
	std::latch begin(1), end(4);
	std::barrier phase(4);
	std::counting_semaphore<4> seats(2);
	std::atomic<int> steps{0};
	std::vector<std::jthread> threads;
	for (int i = 0; i < 4; i++)
		threads.emplace_back([&] {
			begin.wait();
			for (int k = 0; k < 20; k++) {
				seats.acquire();
				steps++;
				seats.release();
				phase.arrive_and_wait();
			}
			end.count_down();
		});
	begin.count_down();
	end.wait();
	std::promise<int> promise;
	std::future<int> answer = std::async(std::launch::async, [&] { return promise.get_future().get() + 2; });
	promise.set_value(steps);
	std::future<int> lazy = std::async(std::launch::deferred, [] { return 1; });
	std::printf("%d\n", answer.get() + lazy.get());
}
