/* Two functions of one depth come to malloc and free by the same seven others, often, in turn: their stacks differ in one word far out. The wrong write is to a block of the second. */
#include <stdio.h>
#include <stdlib.h>

#define apart __attribute__((noinline))
#define stay(who) __asm__ volatile("# " who : : : "memory") /* no tail call, and not the same code as another function */
enum { MANY = 400, ONE = 123 };

static apart void *a(void *p)
{
	if (!p) {
		p = malloc(24);
		stay("made");
		return p;
	}
	free(p);
	stay("freed");
	return NULL;
}
static apart void *b(void *p) { p = a(p); stay("b"); return p; }
static apart void *c(void *p) { p = b(p); stay("c"); return p; }
static apart void *d(void *p) { p = c(p); stay("d"); return p; }
static apart void *e(void *p) { p = d(p); stay("e"); return p; }
static apart void *f(void *p) { p = e(p); stay("f"); return p; }
static apart void *g(void *p) { p = f(p); stay("g"); return p; }
static apart void *first(void *p) { p = g(p); stay("first"); return p; }
static apart void *second(void *p) { p = g(p); stay("second"); return p; }

int main(int argc, char **argv)
{
	char *volatile one[2][MANY];
	int overflow = argv[1][0] == 'o';
	for (int i = 0; i < MANY; i++) {
		one[0][i] = first(NULL);
		one[1][i] = second(NULL);
	}
	volatile char *wrong = one[1][ONE];
	if (overflow)
		wrong[24] = 1;
	for (int i = 0; i < MANY; i++) {
		first(one[0][i]);
		second(one[1][i]);
	}
	if (!overflow)
		wrong[3] = 1;
	puts("ok");
	return argc < 0;
}
