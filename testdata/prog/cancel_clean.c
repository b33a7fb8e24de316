// Threads cancelled in a condition wait, a semaphore wait, a read and a sleep, with cleanup handlers that unlock.
// ripstop: verdict none
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>
#include "order.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static sem_t never_posted;
static int fds[2], cleaned;

static void unlock(void *arg)
{
	cleaned++;
	pthread_mutex_unlock(arg);
}

static void *in_cond(void *arg)
{
	pthread_mutex_lock(&lock);
	pthread_cleanup_push(unlock, &lock);
	reach(1);
	for (;;)
		pthread_cond_wait(&never, &lock);
	pthread_cleanup_pop(1);
	return arg;
}

static void *in_sem(void *arg)
{
	reach(1);
	sem_wait(&never_posted);
	return arg;
}

static void *in_read(void *arg)
{
	char c;
	reach(1);
	if (read(fds[0], &c, 1) == 1)
		puts("?");
	return arg;
}

static void *in_sleep(void *arg)
{
	reach(1);
	for (;;)
		pause();
	return arg;
}

int main(void)
{
	void *(*bodies[])(void *) = {in_cond, in_sem, in_read, in_sleep};
	sem_init(&never_posted, 0, 0);
	if (pipe(fds))
		return 1;
	for (int i = 0; i < 4; i++) {
		pthread_t t;
		void *r;
		reach(0);
		pthread_create(&t, NULL, bodies[i], NULL);
		await(1);
		pthread_cancel(t);
		pthread_join(t, &r);
		if (r != PTHREAD_CANCELED)
			return 2;
	}
	pthread_mutex_lock(&lock);
	printf("cleaned %d\n", cleaned);
	pthread_mutex_unlock(&lock);
	return 0;
}
