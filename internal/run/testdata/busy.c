/* Threads that lock, nest, wait and signal correctly until input ends, and then print how often; counts must add up. Status 5. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { THREADS = 4 };
static pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER, inner = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static long long sum, counts[THREADS];
static int stop, whose;

static void *work(void *arg)
{
	long me = (long)arg;
	pthread_mutex_lock(&outer);
	while (!stop) {
		while (whose != me && !stop)
			pthread_cond_wait(&turn, &outer);
		pthread_mutex_lock(&inner);
		sum++;
		counts[me]++;
		pthread_mutex_unlock(&inner);
		whose = (whose + 1) % THREADS;
		pthread_cond_broadcast(&turn);
	}
	pthread_mutex_unlock(&outer);
	return NULL;
}

int main(void)
{
	pthread_t t[THREADS];
	for (long i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, work, (void *)i);
	puts("ready");
	fflush(stdout);
	char c;
	while (read(0, &c, 1) > 0)
		;
	pthread_mutex_lock(&outer);
	stop = 1;
	pthread_cond_broadcast(&turn);
	pthread_mutex_unlock(&outer);
	long long all = 0;
	for (int i = 0; i < THREADS; i++) {
		pthread_join(t[i], NULL);
		all += counts[i];
	}
	puts(all == sum && all > 0 ? "counts add up" : "counts do not add up");
	return 5;
}
