// throw.cc: exceptions and destructors through code that is patched all over.
#include <cstdio>
#include <cstring>
#include <signal.h>
#include <stdexcept>
#include <string>
#include <vector>

static int alive;
struct Guard {
	Guard() { __atomic_add_fetch(&alive, 1, __ATOMIC_RELAXED); }
	~Guard() { __atomic_sub_fetch(&alive, 1, __ATOMIC_RELAXED); }
};

__attribute__((noinline)) static int deep(int n, std::vector<int> &v)
{
	Guard g;
	v[(size_t)n % v.size()] += n;
	if (n == 0)
		throw std::runtime_error("at the bottom " + std::to_string(v[1]));
	return deep(n - 1, v) + v[0];
}

// Through a call whose target is in memory.
struct Thrower {
	virtual int go(int n, std::vector<int> &v) = 0;
	virtual ~Thrower() {}
};
struct Deeper : Thrower {
	Thrower *next = nullptr;
	int go(int n, std::vector<int> &v) override
	{
		Guard g;
		return n == 0 ? deep(3, v) : next->go(n - 1, v) + 1;
	}
};
static Deeper deeper;
static Thrower *volatile thrower = &deeper;

// An exception out of a handler of a fault of an instruction (-fnon-call-exceptions).
struct Fault {};
static void on_fault(int) { throw Fault(); }
__attribute__((noinline)) static int load(volatile int *p)
{
	Guard g;
	return *p + 1;
}

int main()
{
	std::string all;
	std::vector<int> v(7);
	for (int i = 0; i < 200; i++) {
		try {
			deep(i % 40, v);
		} catch (const std::exception &e) {
			all += e.what();
		}
	}
	std::printf("%zu %zu %d\n", all.size(), std::hash<std::string>()(all), alive);
	deeper.next = thrower;
	for (int i = 0; i < 50; i++) {
		try {
			thrower->go(i % 7, v);
		} catch (const std::exception &e) {
			all += e.what();
		}
	}
	std::printf("%zu %zu %d\n", all.size(), std::hash<std::string>()(all), alive);
	struct sigaction sa;
	std::memset(&sa, 0, sizeof sa);
	sa.sa_handler = on_fault;
	sa.sa_flags = SA_NODEFER;
	sigaction(SIGSEGV, &sa, nullptr);
	for (int i = 0; i < 5; i++) {
		try {
			std::printf("%d\n", load((volatile int *)8));
		} catch (Fault &) {
			std::printf("fault, alive %d\n", alive);
		}
	}
	return 0;
}
