// Threads that are born, end and are joined all the time: in waves of as many as the argument says, with results, thread-local data, blocks that another thread frees, some detached, some that
// make threads themselves, some that end by pthread_exit. Prints sums that are the same in each run.
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <time.h>

enum { MOST = 16, WAVES = 24 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sem_t over;
static uint64_t sum;
static __thread uint64_t own[32];
static char *given[MOST];

static void *leaf(void *arg)
{
	own[3] += (uint64_t)(uintptr_t)arg;
	pthread_mutex_lock(&lock);
	sum = sum + own[3] * 7;
	pthread_mutex_unlock(&lock);
	return (void *)(uintptr_t)own[3];
}

static void *alone(void *arg)
{
	leaf(arg);
	sem_post(&over);
	return NULL;
}

static void *work(void *arg)
{
	uintptr_t me = (uintptr_t)arg;
	char *p = malloc(100 + me);
	memset(p, (int)me, 100 + me);
	for (int i = 0; i < 50; i++) {
		pthread_mutex_lock(&lock);
		sum += (uint64_t)p[i] + own[5]++;
		pthread_mutex_unlock(&lock);
	}
	given[me] = p;
	if (me % 4 == 1) {
		pthread_t t;
		void *r;
		if (pthread_create(&t, NULL, leaf, (void *)(me + 100)) || pthread_join(t, &r) || r != (void *)(me + 100))
			abort();
	}
	if (me % 3 == 2)
		pthread_exit((void *)(me + 1));
	return (void *)(me + 1);
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 2;
	pthread_t t[MOST], d;
	pthread_attr_t detached;
	struct timespec soon = {0, 3000000};
	sem_init(&over, 0, 0);
	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	for (int w = 0; w < WAVES; w++) {
		for (int i = 0; i < threads; i++)
			if (pthread_create(&t[i], NULL, work, (void *)(uintptr_t)i))
				abort();
		if (pthread_create(&d, w % 2 ? &detached : NULL, alone, (void *)(uintptr_t)w) || (w % 2 == 0 && pthread_detach(d)))
			abort();
		for (int i = threads - 1; i >= 0; i--) {
			void *r = NULL;
			if ((i % 2 ? pthread_join(t[i], &r) : pthread_timedjoin_np(t[i], &r, &(struct timespec){INT32_MAX, 0})) || r != (void *)(uintptr_t)(i + 1))
				abort();
			free(given[i]);
		}
		sem_wait(&over);
		nanosleep(&soon, NULL);
	}
	printf("%d: %llu\n", threads, (unsigned long long)sum);
	return 0;
}
