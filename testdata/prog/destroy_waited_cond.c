// A condition destroyed while a thread waits on it: glibc's destroy waits until the waiter, here cancelled, has left.
// ripstop: verdict destroy-waited objects=ready frames=main
// ripstop: epochs hangs
#define _GNU_SOURCE
#include <pthread.h>
#include "blocked.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ready = PTHREAD_COND_INITIALIZER;
static pthread_t waiting;

static void unlock(void *arg) { pthread_mutex_unlock(arg); }

static void *waiter(void *arg)
{
	pthread_mutex_lock(&lock);
	pthread_cleanup_push(unlock, &lock);
	reach(1);
	for (;;)
		pthread_cond_wait(&ready, &lock);
	pthread_cleanup_pop(1);
	return arg;
}

static void *rescuer(void *arg)
{
	await(2);
	await_blocked_on(getpid(), &ready, sizeof ready); /* main, in pthread_cond_destroy */
	pthread_cancel(waiting);
	return arg;
}

int main(void)
{
	pthread_t rescue;
	pthread_create(&waiting, NULL, waiter, NULL);
	pthread_create(&rescue, NULL, rescuer, NULL);
	await(1);
	pthread_mutex_lock(&lock); /* it is in the wait once the mutex can be had */
	pthread_mutex_unlock(&lock);
	reach(2);
	pthread_cond_destroy(&ready);
	pthread_join(waiting, NULL);
	pthread_join(rescue, NULL);
	puts("done");
	return 0;
}
