// A priority-inheriting and a recursive mutex in opposite orders.
// ripstop: verdict lock-order-inversion objects=inheriting,recursive frames=one,two
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include "order.h"

static pthread_mutex_t inheriting, recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

static void *one(void *arg)
{
	pthread_mutex_lock(&inheriting);
	pthread_mutex_lock(&recursive);
	pthread_mutex_lock(&recursive);
	pthread_mutex_unlock(&recursive);
	pthread_mutex_unlock(&recursive);
	pthread_mutex_unlock(&inheriting);
	reach(1);
	return arg;
}

static void *two(void *arg)
{
	await(1);
	pthread_mutex_lock(&recursive);
	pthread_mutex_lock(&inheriting);
	pthread_mutex_unlock(&inheriting);
	pthread_mutex_unlock(&recursive);
	return arg;
}

int main(void)
{
	pthread_mutexattr_t attr;
	pthread_t t1, t2;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setprotocol(&attr, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&inheriting, &attr);
	pthread_create(&t1, NULL, one, NULL);
	pthread_create(&t2, NULL, two, NULL);
	pthread_join(t1, NULL);
	pthread_join(t2, NULL);
	puts("done");
	return 0;
}
