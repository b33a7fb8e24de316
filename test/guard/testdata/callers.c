/* Two functions of one depth call the same wrappers of malloc and free, often; the wrong write is to a block of the second. */
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#define apart __attribute__((noinline))
#define stay(who) __asm__ volatile("# " who : : : "memory") /* no tail call, and not the same code as another function */
enum { MANY = 400, ONE = 123 };

static apart void *xmalloc(size_t n)
{
	void *p = malloc(n);
	if (!p)
		abort();
	return p;
}
static apart void xfree(void *p) { free(p); stay("xfree"); }
static apart void *first_makes(void) { void *p = xmalloc(24); stay("first"); return p; }
static apart void *second_makes(void) { void *p = xmalloc(24); stay("second"); return p; }
static apart void first_drops(void *p) { xfree(p); stay("first"); }
static apart void second_drops(void *p) { xfree(p); stay("second"); }

int main(int argc, char **argv)
{
	static char *volatile first[MANY], *volatile second[MANY];
	int mixed = strcmp(argv[2], "mixed") == 0;
	for (int i = 0; i < MANY; i++) {
		first[i] = first_makes();
		if (mixed)
			second[i] = second_makes();
	}
	for (int i = 0; i < MANY && !mixed; i++)
		second[i] = second_makes();
	char *volatile one = second[ONE];
	if (strcmp(argv[1], "overflow") == 0)
		one[24] = 1;
	for (int i = 0; i < MANY; i++) {
		first_drops(first[i]);
		if (mixed)
			second_drops(second[i]);
	}
	for (int i = 0; i < MANY && !mixed; i++)
		second_drops(second[i]);
	if (strcmp(argv[1], "freed") == 0)
		one[3] = 1;
	puts("ok");
	return 0;
}
