// A thread pool whose tasks take two locks in one order, and submit more tasks.
// ripstop: verdict none
#include <cstdio>
#include "pool.h"

static std::mutex accounts, journal;
static int sum;

int main()
{
	{
		Pool pool(4);
		std::vector<std::future<int>> results;
		for (int i = 0; i < 200; i++)
			results.push_back(pool.submit([&pool, i] {
				std::lock_guard<std::mutex> a(accounts);
				std::lock_guard<std::mutex> b(journal);
				sum += i;
				if (i % 10 == 0)
					pool.submit([] { return 0; });
				return i;
			}));
		for (auto &r : results)
			r.get();
	}
	std::printf("%d\n", sum);
}
