// heap_plugin_lib.cc: the plugin of heap_plugin.c.
#include <memory>
#include <new>
#include <string>
#include <vector>

// Its destructor jumps to operator delete, so that the caller by return address is libc, where no scope has one: the agent ended Xvfb for it.
#pragma GCC optimize("O2")
struct held {
	void *p = ::operator new(10);
	~held();
};
held::~held() { ::operator delete(p); }
static held one;

// The same, called by the program, in whose scope only the agent has one.
extern "C" void give(void *p) { ::operator delete(p); }
extern "C" void *take() { return ::operator new(20); }

extern "C" int work()
{
	std::vector<std::string> v;
	for (int i = 0; i < 100; i++)
		v.push_back(std::string(100, 'x'));
	auto p = std::make_unique<int>(41);
	volatile size_t huge = size_t(1) << 60;
	try {
		*p += new char[huge] != nullptr;
	} catch (const std::bad_alloc &) {
		++*p;
	}
	return *p + int(v.size()) - 100;
}
