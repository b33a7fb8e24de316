// std::mutex in opposite orders, and the threads meet.
// ripstop: verdict deadlock objects=first,second frames=forth,back
// ripstop: hangs
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
	meet(2);
	std::lock_guard<std::mutex> b(second);
}

static void back()
{
	std::lock_guard<std::mutex> b(second);
	meet(2);
	std::lock_guard<std::mutex> a(first);
}

int main()
{
	std::thread t1(forth), t2(back);
	t1.join();
	t2.join();
}
