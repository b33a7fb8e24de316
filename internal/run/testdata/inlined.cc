// Two threads take two locks in opposite orders, one after the other, in functions that are inlined: a template into a method, that into the
// thread's function. Build with -O2.
#include <mutex>
#include <thread>

struct Account {
	std::mutex lock;
	long balance;
};

template <class T> [[gnu::always_inline]] static inline void both(T &from, T &to)
{
	from.lock.lock();
	to.lock.lock(); // here
	from.balance--;
	to.balance++;
	to.lock.unlock();
	from.lock.unlock();
}

struct Bank {
	Account a, b;
	[[gnu::always_inline]] inline void forth() { both(a, b); }
	[[gnu::always_inline]] inline void back() { both(b, a); }
};

static Bank bank;

[[gnu::noinline]] static void one() { bank.forth(); asm(""); }
[[gnu::noinline]] static void two() { bank.back(); asm(""); }

int main()
{
	std::mutex begun;
	begun.lock();
	std::thread second([&] {
		begun.lock();
		two();
		begun.unlock();
	});
	std::thread first([&] { one(); });
	first.join();
	begun.unlock();
	second.join();
}
