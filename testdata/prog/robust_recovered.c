// A robust mutex whose owner died is repaired by the next: what robust mutexes are for.
// ripstop: verdict none
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t lock;

static void *die_with_it(void *arg)
{
	pthread_mutex_lock(&lock);
	return arg;
}

int main(void)
{
	pthread_mutexattr_t attr;
	int recovered = 0;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&lock, &attr);
	for (int i = 0; i < 5; i++) {
		pthread_t t;
		pthread_create(&t, NULL, die_with_it, NULL);
		pthread_join(t, NULL);
		if (pthread_mutex_lock(&lock) == EOWNERDEAD && pthread_mutex_consistent(&lock) == 0)
			recovered++;
		pthread_mutex_unlock(&lock);
	}
	pthread_mutex_destroy(&lock);
	printf("%d\n", recovered);
	return 0;
}
