// Writes behind a block on a thread of its own, while two others yield until they are asked to stop.
#include <atomic>
#include <chrono>
#include <stop_token>
#include <thread>
#include <vector>

static std::atomic<int> done;

static void yields(std::stop_token stop)
{
	while (!stop.stop_requested())
		std::this_thread::yield();
	done++;
}

int main()
{
	int *block = new int[10];
	std::jthread a(yields), b(yields), writes([block] {
		for (int i = 0; i < 20; i++) {
			std::vector<int> v(1000, i);
			std::this_thread::sleep_for(std::chrono::milliseconds(2));
		}
		block[10] = 7; // written here
	});
	writes.join();
	a.request_stop(), b.request_stop();
	while (done < 2)
		std::this_thread::yield();
	delete[] block;
}
