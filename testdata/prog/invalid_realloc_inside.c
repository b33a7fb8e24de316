// realloc of an address inside of a large block: as invalid_free_inside.
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
	char *volatile p = make(100000);
	p = realloc(p + 32, 10);
	puts("done");
	return 0;
}
