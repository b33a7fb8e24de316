// thread_local objects whose destructors take locks when the thread ends.
// ripstop: verdict none
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <thread>
#include <vector>
#include "order.h"

static std::mutex lock;
static int ended;

struct tracker {
	~tracker()
	{
		std::lock_guard<std::mutex> g(lock);
		ended++;
	}
	int x = 0;
};

static thread_local tracker mine;

int main()
{
	for (int round = 0; round < 5; round++) {
		std::vector<std::thread> ts;
		for (int i = 0; i < 10; i++)
			ts.emplace_back([] { mine.x++; });
		for (auto &t : ts)
			t.join();
	}
	std::printf("%d\n", ended);
}
