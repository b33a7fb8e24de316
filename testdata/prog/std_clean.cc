// std::scoped_lock, std::lock, call_once, recursive_mutex, condition_variable, static guards, exceptions through locks, used rightly.
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

static std::mutex first, second;
static std::recursive_mutex again;
static std::once_flag flag;
static std::condition_variable ready;
static bool go;
static int sum;

struct config {
	int value;
	config() : value(7) { std::lock_guard<std::mutex> g(first); }
};

static int get()
{
	static config c;
	return c.value;
}

static void work(int i)
{
	get();
	std::call_once(flag, [] { sum = 100; });
	for (int k = 0; k < 200; k++) {
		if (i % 2) {
			std::scoped_lock both(first, second);
			sum++;
		} else {
			std::lock(second, first);
			sum++;
			first.unlock();
			second.unlock();
		}
		try {
			std::lock_guard<std::recursive_mutex> a(again), b(again);
			if (k % 10 == 0)
				throw std::runtime_error("out");
		} catch (const std::runtime_error &) {
		}
	}
	std::unique_lock<std::mutex> l(first);
	ready.wait(l, [] { return go; });
}

int main()
{
	std::vector<std::thread> ts;
	for (int i = 0; i < 4; i++)
		ts.emplace_back(work, i);
	{
		std::lock_guard<std::mutex> l(first);
		go = true;
	}
	ready.notify_all();
	for (auto &t : ts)
		t.join();
	auto p = std::make_unique<std::mutex>();
	p->lock();
	p->unlock();
	std::printf("%d\n", sum);
}
