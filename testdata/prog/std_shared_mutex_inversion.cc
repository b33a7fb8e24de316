// std::shared_mutex: a writer and a reader in opposite orders.
// ripstop: verdict lock-order-inversion objects=table,journal frames=forth,back
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <stdexcept>
#include <thread>
#include <vector>
#include "order.h"

static std::shared_mutex table;
static std::mutex journal;

static void forth()
{
	std::shared_lock<std::shared_mutex> a(table);
	std::lock_guard<std::mutex> b(journal);
}

static void back()
{
	std::lock_guard<std::mutex> b(journal);
	std::unique_lock<std::shared_mutex> a(table);
}

int main()
{
	std::thread t1([] { forth(); reach(1); });
	std::thread t2([] { await(1); back(); });
	t1.join();
	t2.join();
	std::puts("done");
}
