// A std::unique_lock is moved to another thread, which gives the mutex back: it is locked by the one and unlocked by the other.
// ripstop: verdict unlock-not-owner objects=lock frames=main
#include <cstdio>
#include <mutex>
#include <thread>

static std::mutex lock;

int main()
{
	std::unique_lock<std::mutex> hold(lock);
	std::thread([taken = std::move(hold)]() mutable { taken.unlock(); }).join();
	std::puts("done");
}
