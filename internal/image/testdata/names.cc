// Names of many kinds: namespaces, templates, lambdas, inlined calls in two depths, a static function without a linkage name, globals.
#include <cstdio>
#include <mutex>

namespace bank {
std::mutex table[4];
int zeroes[100];
static volatile int counter = 5;

static inline __attribute__((always_inline)) int deep(int x)
{
	asm volatile(".globl mark_deep\nmark_deep: nop" ::: "memory");
	return x * 3 + counter;
}

static inline __attribute__((always_inline)) int mid(int x)
{
	return deep(x) + 1;
}

struct Account {
	int balance = 0;
	std::mutex m;
	template <class T> __attribute__((noinline)) void transfer(Account &o, T n);
};

template <class T> __attribute__((noinline)) void Account::transfer(Account &o, T n)
{
	m.lock();
	o.balance += mid(n);
	zeroes[3] = n;
	m.unlock();
}
} // namespace bank

extern "C" __attribute__((noinline)) int plain_c(int x)
{
	asm volatile("" ::: "memory");
	return x + 1;
}

int main(int argc, char **)
{
	bank::Account a, b;
	auto twice = [](int v) __attribute__((noinline)) { asm volatile("" ::: "memory"); return 2 * v; };
	a.transfer(b, argc);
	printf("%d\n", plain_c(twice(b.balance)));
	return 0;
}
