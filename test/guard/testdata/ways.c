/* Allocates in 8^6 ways, all by one call of malloc, as a parser or a tree does; writes behind a block of the first way, behind one of the last, and behind one of another place, as argv says.
 * locks: makes a lock in each of them instead. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define apart __attribute__((noinline))
enum { LEVELS = 6, WAYS = 1 << 3 * LEVELS };

static pthread_mutex_t mutex;
static bool locks;

static apart char *leaf(void)
{
	if (locks) {
		pthread_mutex_init(&mutex, NULL);
		pthread_mutex_destroy(&mutex);
		return NULL;
	}
	char *p = malloc(24);
	__asm__ volatile("" : : : "memory"); /* no tail call */
	return p;
}

static apart char *way(unsigned bits, int level)
{
	char *p;
	if (level == 0)
		return leaf();
#define CALL(i) case i: p = way(bits >> 3, level - 1); __asm__ volatile("# " #i : : : "memory"); break
	switch (bits & 7) {
	CALL(0); CALL(1); CALL(2); CALL(3); CALL(4); CALL(5); CALL(6);
	default: p = way(bits >> 3, level - 1); __asm__ volatile("# 7" : : : "memory");
	}
	return p;
}

static apart char *other(void)
{
	char *p = malloc(40);
	__asm__ volatile("" : : : "memory");
	return p;
}

int main(int argc, char **argv)
{
	locks = argc > 1 && strcmp(argv[1], "locks") == 0;
	char *volatile first = way(0, LEVELS), *volatile last = NULL, *volatile another = NULL;
	for (unsigned i = 1; i < WAYS; i++) {
		free(last);
		last = way(i, LEVELS);
	}
	another = other();
	if (argc > 1 && strcmp(argv[1], "first") == 0)
		*(volatile char *)(first + 24) = 1;
	else if (argc > 1 && strcmp(argv[1], "last") == 0)
		*(volatile char *)(last + 24) = 1;
	else if (argc > 1 && strcmp(argv[1], "another") == 0)
		*(volatile char *)(another + 40) = 1;
	free(first), free(last), free(another);
	puts("ok");
	return 0;
}
