// Crashes where the time stamp counter is later than the clock, which is read after it: never, but in a re-execution, which is given the clock's times of the recording.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <x86intrin.h>

enum { ROUNDS = 60, CLOSE = 20000 };

static int64_t now_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

static void pause_ms(int ms)
{
	struct timespec ts = {0, ms * 1000000l};
	nanosleep(&ts, NULL);
}

/* Both, of nearly the same moment. */
static int64_t both(uint64_t *tsc)
{
	int64_t before, after;
	do {
		before = now_ns();
		*tsc = __rdtsc();
		after = now_ns();
	} while (after - before > CLOSE);
	return before;
}

int main(void)
{
	uint64_t c0, c1, c;
	int64_t t0 = both(&c0);
	pause_ms(200);
	int64_t t1 = both(&c1);
	double ns = (double)(t1 - t0) / (double)(c1 - c0);
	int64_t sum = 0;
	for (int r = 0; r < ROUNDS; r++) {
		pause_ms(5);
		c = __rdtsc();
		int64_t clock = now_ns(), tsc = t0 + (int64_t)((double)(c - c0) * ns);
		if (tsc - clock > 10000000)
			*(volatile int *)0 = 1;
		sum += r;
	}
	printf("%ld\n", (long)sum);
	return 0;
}
