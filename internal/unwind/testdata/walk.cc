// Threads that stand in destructors and handlers while an exception is on its way, and in lambdas and virtual calls.
#include <atomic>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <thread>
#include <unistd.h>
#include <vector>

static std::atomic<int> arrived;
static volatile bool never;

__attribute__((noinline)) static void stand()
{
	arrived++;
	while (!never)
		pause();
}

struct Guard {
	bool on;
	~Guard() { if (on) stand(); }
};
struct Base {
	virtual int f(int n) = 0;
	virtual ~Base() = default;
};
struct Derived : Base {
	__attribute__((noinline)) int f(int n) override { if (n == 0) throw std::runtime_error("x"); return f(n - 1) + 1; }
};

__attribute__((noinline)) static int in_destructor(Base &b, std::vector<int> v)
{
	Guard g{true};
	return b.f(5) + int(v.size());
}
__attribute__((noinline)) static int in_handler(Base &b)
{
	try {
		return b.f(5);
	} catch (const std::exception &e) {
		stand();
		return e.what()[0];
	}
}

int main()
{
	std::vector<std::thread> ts;
	ts.emplace_back([] { Derived d; try { in_destructor(d, {1, 2, 3}); } catch (...) { } });
	ts.emplace_back([] { Derived d; in_handler(d); });
	std::function<int(int)> f = [&](int n) { if (n == 0) stand(); return n == 0 ? 0 : f(n - 1); };
	ts.emplace_back([&] { f(6); });
	while (arrived < 3)
		usleep(1000);
	puts("ready");
	fflush(stdout);
	stand();
}
