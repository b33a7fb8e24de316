// Two threads that work in one array from the start; a line on standard input starts two more, and another one ends all. The counts must add up.
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

static long *array;
static atomic_int over;
static atomic_long rounds;

static void *work(void *arg) {
	long mine = 0;
	unsigned s = (unsigned)(long)arg + 1;
	long *part = array + 16 * (long)arg;
	while (!atomic_load_explicit(&over, memory_order_relaxed)) {
		for (int i = 0; i < 1000; i++) {
			s = s * 1103515245 + 12345;
			part[s >> 14 & 15]++;
		}
		mine += 1000;
	}
	atomic_fetch_add(&rounds, mine);
	return 0;
}

int main(void) {
	pthread_t t[4];
	char line[16];
	array = calloc(64, sizeof *array);
	for (long i = 0; i < 4; i++) {
		pthread_create(&t[i], 0, work, (void *)i);
		if (i == 1) {
			puts("ready");
			fflush(stdout);
			if (!fgets(line, sizeof line, stdin))
				return 1;
		}
	}
	puts("more");
	fflush(stdout);
	if (!fgets(line, sizeof line, stdin))
		return 1;
	over = 1;
	long sum = 0;
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], 0);
	for (int i = 0; i < 64; i++)
		sum += array[i];
	puts(sum == rounds ? "counts add up" : "counts differ");
	return 7;
}
