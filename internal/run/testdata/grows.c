// Large blocks that come, grow, shrink and go, and keep what is in them. Its status is 4.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BLOCKS = 6, STEPS = 500, MOST = 6 << 20 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t seed = 88172645463325252, *block[BLOCKS], of[BLOCKS];
static size_t words[BLOCKS];

static uint64_t chance(void)
{
	seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
	return seed;
}

static void check(int step, int b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (block[b][i] != of[b] + i) {
			fprintf(stderr, "step %d: word %zu of %zu: %llx, not %llx\n", step, i, n, (unsigned long long)block[b][i], (unsigned long long)(of[b] + i));
			exit(5);
		}
}

int main(void)
{
	for (int step = 0; step < STEPS; step++) {
		int b = (int)(chance() % BLOCKS);
		size_t n = (size_t)(chance() % (MOST / 8)) + 1;
		if (block[b] && chance() % 4 == 0) {
			check(step, b, words[b]);
			free(block[b]);
			block[b] = NULL;
			words[b] = 0;
			continue;
		}
		if (!(block[b] = realloc(block[b], n * 8)))
			return 6;
		check(step, b, words[b] < n ? words[b] : n);
		if (!words[b])
			of[b] = chance();
		for (size_t i = words[b] < n ? words[b] : n; i < n; i++)
			block[b][i] = of[b] + i;
		words[b] = n;
		pthread_mutex_lock(&lock); // an event, where an epoch may end
		pthread_mutex_unlock(&lock);
		if (step % 8 == 0)
			nanosleep(&(struct timespec){0, 4000000}, NULL);
	}
	return 4;
}
