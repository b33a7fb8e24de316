// Tasks of a thread pool in opposite orders, done by any of its threads. They are far enough apart in time not to meet.
// ripstop: verdict lock-order-inversion objects=accounts,journal frames=forth,back
#include <cstdio>
#include "order.h"
#include "pool.h"

static std::mutex accounts, journal;

static int forth()
{
	std::lock_guard<std::mutex> a(accounts);
	std::lock_guard<std::mutex> b(journal);
	return 1;
}

static int back()
{
	std::lock_guard<std::mutex> b(journal);
	std::lock_guard<std::mutex> a(accounts);
	return 2;
}

int main()
{
	Pool pool(2);
	/* Both threads are in a task at the same time, so each does one of them. */
	auto one = pool.submit([] { meet(2); int r = forth(); reach(1); return r; });
	auto two = pool.submit([] { meet(2); await(1); return back(); });
	std::printf("%d\n", one.get() + two.get());
}
