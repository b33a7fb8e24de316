// A std::mutex unlocked once more than it was locked.
// ripstop: verdict unlock-not-locked objects=lock frames=main
#include <cstdio>
#include <mutex>

static std::mutex lock;

int main()
{
	lock.lock();
	lock.unlock();
	lock.unlock();
	std::puts("done");
}
