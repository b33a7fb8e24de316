// heap_new.cc: all forms of operator new and delete, with exceptions and a new_handler.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <new>

struct thrower {
	thrower() { throw 1; }
};
struct alignas(128) wide {
	char c[300];
};
static int handled;

int main()
{
	volatile size_t huge = size_t(1) << 60;
	for (int i = 0; i < 200; i++) {
		delete new int;
		delete[] new int[100];
		delete new wide;
		delete[] new wide[3];
		delete new (std::nothrow) int;
		delete[] new (std::nothrow) wide[2];
		::operator delete(::operator new(40), std::nothrow);
		::operator delete(::operator new(40, std::align_val_t(64)), std::align_val_t(64));
		::operator delete(::operator new(40), size_t(40));
		try {
			new thrower;
		} catch (int) {
		}
	}
	printf("aligned %d\n", int(reinterpret_cast<uintptr_t>(new wide) % 128));
	printf("nothrow %d\n", new (std::nothrow) char[huge] == nullptr);
	try {
		printf("%p\n", static_cast<void *>(new char[huge]));
	} catch (const std::bad_alloc &) {
		puts("bad_alloc");
	}
	std::set_new_handler([] {
		if (++handled == 3)
			std::set_new_handler(nullptr);
	});
	try {
		printf("%p\n", static_cast<void *>(new char[huge]));
	} catch (const std::bad_alloc &) {
		printf("handled %d\n", handled);
	}
}
