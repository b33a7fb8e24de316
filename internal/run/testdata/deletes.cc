// Blocks that are given back by operator delete: what is none ("none"), and one twice. With the sizes that compilers give, and without.
#include <cstdio>
#include <cstring>
#include <new>

static long none;

__attribute__((noinline)) static void drops(long *p) { delete p; }
__attribute__((noinline)) static void drops_again(long *p) { ::operator delete((void *)p); }

int main(int, char **argv)
{
	if (!strcmp(argv[1], "none"))
		drops(&none);
	long *p = new long;
	drops(p);
	drops_again(p);
}
