// The standard library's locks, and exceptions through initialisers.
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <semaphore>
#include <shared_mutex>
#include <stdexcept>
#include <thread>
#include <vector>
#include <barrier>
#include <latch>

static std::once_flag flag, outer, inner;
static int tries;

static void fails_twice()
{
	if (++tries < 3)
		throw std::runtime_error("not yet");
}

struct Made {
	Made() { if (++made < 3) throw made; }
	static int made;
};
int Made::made;
static Made &the_one()
{
	static Made m;
	return m;
}
static int slow_static()
{
	static int v = [] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); return 42; }();
	return v;
}

int main()
{
	std::printf("flag %p\nouter %p\ninner %p\n", (void *)&flag, (void *)&outer, (void *)&inner);
	for (int i = 0; i < 4; i++) {
		try {
			std::call_once(flag, fails_twice);
			std::printf("call_once returned\n");
		} catch (const std::exception &e) {
			std::printf("call_once threw %s\n", e.what());
		}
	}
	try {
		std::call_once(outer, [] { std::call_once(inner, [] { throw 7; }); });
	} catch (int v) {
		std::printf("through two: %d\n", v);
	}
	for (int i = 0; i < 4; i++) {
		try {
			the_one();
			std::printf("static made\n");
		} catch (int v) {
			std::printf("static threw %d\n", v);
		}
	}
	std::vector<std::thread> threads;
	int sum = 0;
	std::mutex m;
	for (int i = 0; i < 4; i++)
		threads.emplace_back([&] { int v = slow_static(); std::lock_guard g(m); sum += v; });
	for (auto &t : threads)
		t.join();
	threads.clear();
	std::printf("statics %d\n", sum);

	std::shared_mutex sm;
	std::recursive_mutex rm;
	std::timed_mutex tm;
	std::shared_timed_mutex stm;
	std::condition_variable cv;
	std::condition_variable_any any;
	std::counting_semaphore<10> sem(2);
	std::barrier bar(4);
	std::latch latch(4);
	long count = 0;
	bool ready = false;
	for (int i = 0; i < 4; i++)
		threads.emplace_back([&, i] {
			for (int k = 0; k < 500; k++) {
				{
					std::unique_lock l(sm);
					count++;
				}
				{
					std::shared_lock l(sm);
					if (count < 0)
						std::printf("lost\n");
				}
				std::lock_guard r1(rm), r2(rm);
				if (tm.try_lock_for(std::chrono::seconds(60)))
					tm.unlock();
				if (stm.try_lock_shared_for(std::chrono::seconds(60)))
					stm.unlock_shared();
				std::scoped_lock both(m, tm);
			}
			bar.arrive_and_wait();
			sem.acquire();
			sem.release();
			latch.arrive_and_wait();
			if (i == 0) {
				std::lock_guard l(m);
				ready = true;
				cv.notify_all();
			}
			{
				std::unique_lock l(m);
				cv.wait(l, [&] { return ready; });
			}
			std::unique_lock l(rm);
			any.wait_for(l, std::chrono::milliseconds(1), [&] { return ready; });
		});
	for (auto &t : threads)
		t.join();
	std::printf("count %ld\n", count);
}
