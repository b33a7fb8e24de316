/* Errors with a block that is older than a heap of many others, one a case. What ripstop guard must say of each, as in heap.c: */
// case clean: none
// case over: heap-overflow size=100 first=103 frame=first_ones
// case under: heap-underflow size=100 frame=first_ones
// case whole: heap-overflow size=100 first=100 frame=first_ones
// case given: heap-overflow size=100 first=100 frame=first_ones
// case moved: heap-overflow size=100 first=100 frame=first_ones
// case freed: use-after-free-write size=100 first=24 frame=first_ones
// case twice: double-free size=100 frame=first_ones ends=SIGABRT and=crash
// case inside: invalid-free size=100 frame=first_ones ends=SIGABRT and=crash
// case aborts: heap-overflow size=100 first=103 frame=first_ones ends=SIGABRT and=crash
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 100, FEW = 24, MANY = 600000 };
char *early[FEW];
void *volatile *later;

#define apart __attribute__((noinline))
static apart char *first_ones(void)
{
	for (int i = 0; i < FEW; i++)
		early[i] = calloc(1, SIZE);
	return early[FEW / 2];
}
static void *others(void *arg)
{
	later = malloc(MANY * sizeof *later);
	for (int i = 0; i < MANY; i++)
		later[i] = calloc(1, SIZE);
	return arg;
}
static apart void drop(void *p)
{
	free(p);
	__asm__ volatile("" ::: "memory");
}
static void *dropped(void *p)
{
	drop(p);
	return p;
}
static void in_thread(void *(*f)(void *), void *arg)
{
	pthread_t t;
	if (pthread_create(&t, NULL, f, arg) || pthread_join(t, NULL))
		abort();
}

int main(int argc, char **argv)
{
	char *volatile p = first_ones();
	char *wrong = argc > 1 ? argv[1] : "";
	in_thread(others, NULL);
	if (!strcmp(wrong, "clean")) {
		drop(early[0]);
		drop(realloc(p, 3 * SIZE));
	} else if (!strcmp(wrong, "over")) {
		p[SIZE + 3] = 'o';
	} else if (!strcmp(wrong, "under")) {
		p[-1] = 'u';
	} else if (!strcmp(wrong, "whole")) {
		memset(p, 'w', SIZE + 26);
	} else if (!strcmp(wrong, "given")) {
		memset(p, 'w', SIZE + 26);
		drop(p);
	} else if (!strcmp(wrong, "moved")) {
		memset(p, 'w', SIZE + 26);
		p = realloc(p, 3 * SIZE);
	} else if (!strcmp(wrong, "freed")) {
		drop(p);
		p[24] = 'f';
	} else if (!strcmp(wrong, "twice")) {
		in_thread(dropped, p);
		drop(p);
	} else if (!strcmp(wrong, "inside")) {
		drop(p + 16);
	} else if (!strcmp(wrong, "aborts")) {
		p[SIZE + 3] = 'o';
		abort();
	}
	puts("ok");
	return 0;
}
