// Threads that ended long before main returned are joined by a global's destructor and by an atexit handler: no leak.
// ripstop: verdict none
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>
#include <vector>

static std::mutex lock;
static std::atomic<int> ended;
static std::thread *late;

static struct Workers {
	std::vector<std::thread> threads;
	~Workers()
	{
		for (auto &t : threads)
			t.join();
	}
} workers;

int main()
{
	for (int i = 0; i < 3; i++)
		workers.threads.emplace_back([] {
			std::lock_guard<std::mutex> hold(lock);
			ended++;
		});
	late = new std::thread([] { ended++; });
	std::atexit([] { late->join(); });
	while (ended < 4)
		std::this_thread::yield();
	std::puts("done");
}
