// Two threads one after the other on the same stack of the program's own: the locks in their frames are different ones at the same address, and others
// take them in different orders.
// ripstop: verdict none
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include "order.h"

enum { SIZE = 256 << 10 };

static char stack[SIZE] __attribute__((aligned(4096)));
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t *volatile shown;

static void both(pthread_mutex_t *first, pthread_mutex_t *second)
{
	pthread_mutex_lock(first);
	pthread_mutex_lock(second);
	pthread_mutex_unlock(second);
	pthread_mutex_unlock(first);
}

static void *one(void *arg)
{
	await(1);
	both(&table, shown);
	reach(2);
	return arg;
}

static void *two(void *arg)
{
	await(3);
	both(shown, &table);
	reach(4);
	return arg;
}

static void *owner(void *arg)
{
	int n = (int)(long)arg;
	pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
	shown = &own;
	reach(n);
	await(n + 1);
	return NULL;
}

int main(void)
{
	pthread_t t1, t2, t;
	pthread_attr_t a;
	pthread_create(&t1, NULL, one, NULL);
	pthread_create(&t2, NULL, two, NULL);
	pthread_attr_init(&a);
	pthread_attr_setstack(&a, stack, SIZE);
	for (long n = 1; n < 4; n += 2) {
		pthread_create(&t, &a, owner, (void *)n);
		pthread_join(t, NULL);
	}
	pthread_join(t1, NULL);
	pthread_join(t2, NULL);
	puts("done");
	return 0;
}
