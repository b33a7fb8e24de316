// std::call_once under a lock, and the lock within the initialiser.
// ripstop: verdict deadlock objects=lock frames=careless,initialise
// ripstop: hangs
#include <mutex>
#include <thread>
#include "order.h"

static std::mutex lock;
static std::once_flag once;

static void initialise()
{
	meet(2);
	std::lock_guard<std::mutex> hold(lock);
}

static void careless()
{
	std::lock_guard<std::mutex> hold(lock);
	meet(2);
	std::call_once(once, initialise);
}

int main()
{
	std::thread a([] { std::call_once(once, initialise); });
	std::thread b(careless);
	a.join();
	b.join();
}
