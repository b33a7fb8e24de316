// A mutex that a thread takes again and again, more often than one event of the log can say, with another one now and then between, in turns with other threads; `sum` depends on the order.
// Prints how often it was taken. Its argument: how many threads.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 16, ROUNDS = 40, AT_ONCE = 9000, OTHER = 3000 };
static pthread_mutex_t often = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;
static uint64_t sum, others;
static long taken;

static void *work(void *arg)
{
	uint64_t me = (uint64_t)(uintptr_t)arg;
	for (int r = 0; r < ROUNDS; r++) {
		for (int i = 0; i < AT_ONCE; i++) {
			pthread_mutex_lock(&often);
			sum = sum * 31 + me;
			taken++;
			pthread_mutex_unlock(&often);
			if (i % OTHER == 0 && pthread_mutex_trylock(&other) == 0) {
				others = others * 31 + me;
				pthread_mutex_unlock(&other);
			}
		}
		struct timespec ts = {0, 4000000};
		nanosleep(&ts, NULL);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 1;
	pthread_t t[MOST];
	for (int i = 1; i < threads && i < MOST; i++)
		if (pthread_create(&t[i], NULL, work, (void *)(uintptr_t)(i + 1)) != 0)
			return 1;
	work((void *)1);
	for (int i = 1; i < threads && i < MOST; i++)
		pthread_join(t[i], NULL);
	printf("%ld\n", taken);
	return 0;
}
