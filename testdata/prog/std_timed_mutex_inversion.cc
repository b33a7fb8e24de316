// std::shared_timed_mutex and std::recursive_mutex: a reader and a writer in opposite orders, each with time limits for one of the two.
// ripstop: verdict lock-order-inversion objects=table,journal frames=forth,back
#include <chrono>
#include <cstdio>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include "order.h"

static std::shared_timed_mutex table;
static std::recursive_mutex journal;

static void forth()
{
	std::shared_lock<std::shared_timed_mutex> a(table, std::chrono::hours(1));
	std::lock_guard<std::recursive_mutex> b(journal);
}

static void back()
{
	std::lock_guard<std::recursive_mutex> b(journal);
	std::lock_guard<std::recursive_mutex> again(journal);
	std::unique_lock<std::shared_timed_mutex> a(table);
}

int main()
{
	std::thread t1([] { forth(); reach(1); });
	std::thread t2([] { await(1); back(); });
	t1.join();
	t2.join();
	std::puts("done");
}
