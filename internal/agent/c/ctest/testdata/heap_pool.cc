// Operators new and delete of a library's own, which hand out the beginning of a block of malloc's: it is deleted, and the block is freed later.
#include <cstdio>
#include <cstdlib>
#include <new>

struct Big { int a[10]; };

#ifdef LIBRARY
static char *chunk;
static unsigned used;

static bool ours(void *p) { return p >= chunk && p < chunk + 4096; }
static void *get(std::size_t n)
{
	if (!chunk)
		chunk = static_cast<char *>(malloc(4096));
	n = (n + 15) & ~std::size_t(15);
	void *p = chunk + used;
	used += n;
	return used <= 4096 ? p : malloc(n);
}
void *operator new(std::size_t n) { return get(n); }
void *operator new[](std::size_t n) { return get(n); }
void operator delete(void *p) noexcept { if (!ours(p)) free(p); }
void operator delete[](void *p) noexcept { if (!ours(p)) free(p); }
void operator delete(void *p, std::size_t) noexcept { if (!ours(p)) free(p); }
void operator delete[](void *p, std::size_t) noexcept { if (!ours(p)) free(p); }
extern "C" void pool_end() { free(chunk); chunk = nullptr; used = 0; }
#else
extern "C" void pool_end();

int main()
{
	for (int i = 0; i < 300; i++) {
		Big *first = new Big, *second = new Big;
		int *array = new int[5];
		first->a[0] = i;
		__asm__ volatile("" : : "r"(first), "r"(second), "r"(array) : "memory");
		delete first;
		delete second;
		delete[] array;
		pool_end();
	}
	puts("done");
}
#endif
