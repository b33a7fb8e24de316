// Two tasks of std::async that take two locks in opposite orders.
// ripstop: verdict lock-order-inversion objects=first,second frames=forth,back
#include <cstdio>
#include <future>
#include <mutex>
#include "order.h"

static std::mutex first, second;

static int forth()
{
	std::lock_guard<std::mutex> a(first);
	std::lock_guard<std::mutex> b(second);
	return 1;
}

static int back()
{
	std::lock_guard<std::mutex> b(second);
	std::lock_guard<std::mutex> a(first);
	return 2;
}

int main()
{
	auto one = std::async(std::launch::async, [] { int r = forth(); reach(1); return r; });
	auto two = std::async(std::launch::async, [] { await(1); return back(); });
	std::printf("%d\n", one.get() + two.get());
}
