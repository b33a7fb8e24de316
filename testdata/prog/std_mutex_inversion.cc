// std::mutex in opposite orders.
// ripstop: verdict lock-order-inversion objects=first,second frames=forth,back
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

static void forth()
{
	std::lock_guard<std::mutex> a(first);
	std::lock_guard<std::mutex> b(second);
}

static void back()
{
	std::lock_guard<std::mutex> b(second);
	std::lock_guard<std::mutex> a(first);
}

int main()
{
	std::thread t1([] { forth(); reach(1); });
	std::thread t2([] { await(1); back(); });
	t1.join();
	t2.join();
	std::puts("done");
}
