// A std::mutex is locked by hand and left so when the thread ends; another in a heap object is locked when the object is deleted.
// ripstop: verdict exit-holding-lock objects=lock frames=forgetful
// ripstop: verdict free-locked frames=main
#include <cstdio>
#include <mutex>
#include <thread>

struct Account {
	std::mutex lock;
	long money = 0;
};

static std::mutex lock;

static void forgetful() { lock.lock(); }

int main()
{
	std::thread(forgetful).join();
	auto *account = new Account;
	account->lock.lock();
	delete account;
	std::puts("done");
}
