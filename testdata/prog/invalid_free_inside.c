// free of an address inside of a block, where glibc finds no sane head and aborts. That it is the most usual kind of invalid free did not help it: only
// addresses on stacks, in the executable's data and at odd places were told; and the agent asked glibc how long such a "block" was, which crashed
// (SIGSEGV) where the program natively dies of glibc's abort.
// ripstop: verdict invalid-free frames=main,make
// ripstop: signal ABRT
// ripstop: build -Wno-free-nonheap-object
// ripstop: epochs invalid-free frames=main,make
// ripstop: epochs crash
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

__attribute__((noinline)) static char *make(size_t n)
{
	char *p = malloc(n);
	memset(p, 'A', n);
	return p;
}

int main(void)
{
	char *volatile p = make(400);
	free(p + 32);
	puts("done");
	return 0;
}
