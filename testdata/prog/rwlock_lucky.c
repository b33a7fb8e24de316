// Writers of two rwlocks in opposite orders, one after the other.
// ripstop: verdict lock-order-inversion objects=map_lock,index_lock frames=one,two
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

static pthread_rwlock_t map_lock = PTHREAD_RWLOCK_INITIALIZER, index_lock = PTHREAD_RWLOCK_INITIALIZER;

static void *one(void *arg)
{
	pthread_rwlock_wrlock(&map_lock);
	pthread_rwlock_wrlock(&index_lock);
	pthread_rwlock_unlock(&index_lock);
	pthread_rwlock_unlock(&map_lock);
	reach(1);
	return arg;
}

static void *two(void *arg)
{
	await(1);
	pthread_rwlock_wrlock(&index_lock);
	pthread_rwlock_wrlock(&map_lock);
	pthread_rwlock_unlock(&map_lock);
	pthread_rwlock_unlock(&index_lock);
	return arg;
}

int main(void)
{
	pthread_t t1, t2;
	pthread_create(&t1, NULL, one, NULL);
	pthread_create(&t2, NULL, two, NULL);
	pthread_join(t1, NULL);
	pthread_join(t2, NULL);
	puts("done");
	return 0;
}
