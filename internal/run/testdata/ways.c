/* More ways to one place than there are numbers for stacks, and a race behind them: of both accesses the callers are told.
 * VERDICT: data race on `late`. */
#include <pthread.h>
#include <stdio.h>

enum { DEEP = 21 };
static long cells[1 << DEEP];
long late;
static pthread_barrier_t both;

#define APART __attribute__((noinline, noclone))

static APART void leaf(unsigned way) { cells[way]++; }

static APART void go(unsigned way, unsigned deep)
{
	if (deep == 0) {
		leaf(way);
		return;
	}
	go(2 * way, deep - 1);
	go(2 * way + 1, deep - 1);
	__asm__ volatile(""); /* no tail call */
}

static APART void touch(void) { late++; }

static APART void *first(void *p)
{
	pthread_barrier_wait(&both);
	touch();
	return p;
}

static APART void *second(void *p)
{
	pthread_barrier_wait(&both);
	touch();
	return p;
}

int main(void)
{
	pthread_t a, b;
	pthread_barrier_init(&both, NULL, 2);
	go(0, DEEP);
	pthread_create(&a, NULL, first, NULL);
	pthread_create(&b, NULL, second, NULL);
	pthread_join(a, NULL);
	pthread_join(b, NULL);
	printf("%ld\n", cells[7]);
	return 0;
}
