// A block is read that another thread freed epochs ago, and the program aborts, or crashes, for another reason; "clean": it is read before it is freed, and blocks at its place are written and read until it aborts. Nothing else is wrong with any.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static long *volatile block, *volatile none;

static __attribute__((noinline)) long look(void) { return block[3]; }

static void *give_up(void *unused)
{
	free(block);
	return unused;
}

static void wait(void)
{
	for (int i = 0; i < 10; i++)
		nanosleep(&(struct timespec){0, 10000000}, NULL);
}

int main(int argc, char **argv)
{
	pthread_t t;
	long sum = 0;
	block = calloc(8, sizeof(long));
	if (argc < 2 || !block)
		return 1;
	if (strcmp(argv[1], "clean") == 0)
		sum += look();
	pthread_create(&t, NULL, give_up, NULL);
	pthread_join(t, NULL);
	wait();
	if (strcmp(argv[1], "clean") == 0) {
		for (int i = 0; i < 100000; i++) { // until the first one's place is used again, too
			long *b = malloc(8 * sizeof(long));
			b[3] = i;
			block = b;
			sum += look();
			free(b);
		}
		abort();
	}
	sum += look();
	if (strcmp(argv[1], "crash") == 0)
		sum += *none;
	if (sum)
		abort();
	return 2;
}
