// Threads that leave by pthread_exit at once, for which libc loads the unwinder, while others are made and end. Prints a sum that is the same in each run.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS = 4, MADE = 8 };
static pthread_barrier_t there;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long sum;

static void *leave(void *arg)
{
	pthread_barrier_wait(&there);
	pthread_mutex_lock(&lock);
	sum += (long)arg;
	pthread_mutex_unlock(&lock);
	pthread_exit(arg);
}

static void *end(void *arg)
{
	return arg;
}

int main(void)
{
	pthread_t thread[THREADS], made[MADE];
	pthread_barrier_init(&there, NULL, THREADS + 1);
	for (long i = 0; i < THREADS; i++)
		if (pthread_create(&thread[i], NULL, leave, (void *)i))
			abort();
	nanosleep(&(struct timespec){0, 30000000}, NULL); // another epoch
	pthread_barrier_wait(&there);
	for (long i = 0; i < MADE; i++)
		if (pthread_create(&made[i], NULL, end, (void *)i))
			abort();
	for (long i = 0; i < MADE; i++) {
		void *r;
		if (pthread_join(made[i], &r) || (long)r != i)
			abort();
		sum += i;
	}
	for (long i = 0; i < THREADS; i++) {
		void *r;
		if (pthread_join(thread[i], &r) || (long)r != i)
			abort();
	}
	printf("%ld\n", sum);
	return 0;
}
