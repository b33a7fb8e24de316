// Gates that are semaphores which other processes could use too: process-shared and named ones that began with 1.
// ripstop: verdict none
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>
#include "order.h"

static sem_t shared, *named;
static pthread_mutex_t lock_a = PTHREAD_MUTEX_INITIALIZER, lock_b = PTHREAD_MUTEX_INITIALIZER, lock_c = PTHREAD_MUTEX_INITIALIZER,
	lock_d = PTHREAD_MUTEX_INITIALIZER;

static void both(sem_t *gate, pthread_mutex_t *first, pthread_mutex_t *second)
{
	sem_wait(gate);
	pthread_mutex_lock(first);
	pthread_mutex_lock(second);
	pthread_mutex_unlock(second);
	pthread_mutex_unlock(first);
	sem_post(gate);
}

static void *one(void *arg)
{
	both(&shared, &lock_a, &lock_b);
	both(named, &lock_c, &lock_d);
	reach(1);
	return arg;
}

static void *two(void *arg)
{
	await(1);
	both(&shared, &lock_b, &lock_a);
	both(named, &lock_d, &lock_c);
	return arg;
}

int main(void)
{
	char name[64];
	snprintf(name, sizeof name, "/ripstop-gate-%d", getpid());
	named = sem_open(name, O_CREAT | O_EXCL, 0600, 1);
	sem_unlink(name);
	sem_init(&shared, 1, 1);
	pthread_t t1, t2;
	pthread_create(&t1, NULL, one, NULL);
	pthread_create(&t2, NULL, two, NULL);
	pthread_join(t1, NULL);
	pthread_join(t2, NULL);
	sem_close(named);
	puts("done");
	return 0;
}
