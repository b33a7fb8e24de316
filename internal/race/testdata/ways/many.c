// Pipes by tens of thousands, each used once and closed: what is remembered of them has a bound. What the first one ordered stays in order, as that is told to be no race; a race behind them is found.
// Prints how much memory the process took for the last of them, if it is much.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { FIRST = 50000, MORE = 100000, MUCH_KIB = 4096 };
static volatile int ordered, raced;
static int kept[2];

static void use(int write_to, int read_from)
{
	char x = 0;
	if (write(write_to, &x, 1) != 1 || read(read_from, &x, 1) != 1)
		abort();
}

static void pipes(int n)
{
	for (int i = 0; i < n; i++) {
		int p[2];
		if (pipe(p))
			abort();
		use(p[1], p[0]);
		close(p[0]);
		close(p[1]);
	}
}

static long resident(void)
{
	long pages = 0;
	FILE *f = fopen("/proc/self/statm", "r");
	if (!f || fscanf(f, "%*d %ld", &pages) != 1)
		abort();
	fclose(f);
	return pages * 4;
}

static void *first(void *arg)
{
	char x = 0;
	ordered = 1;
	if (write(kept[1], &x, 1) != 1)
		abort();
	return arg;
}

static void *many(void *arg)
{
	pipes(FIRST);
	long before = resident();
	pipes(MORE);
	long grown = resident() - before;
	if (grown > MUCH_KIB)
		printf("%ld KiB more\n", grown);
	raced++; // race: many
	return arg;
}

int main(void)
{
	char x;
	pthread_t t[2];
	if (pipe(kept))
		abort();
	pthread_create(&t[0], 0, first, 0);
	pthread_create(&t[1], 0, many, 0);
	raced++; // race: main
	pthread_join(t[1], 0);
	if (read(kept[0], &x, 1) != 1)
		abort();
	ordered = 2; // it was written before the pipe was, by a thread that is not joined yet
	pthread_join(t[0], 0);
	return 0;
}
