// Locks on the stack of main.
// ripstop: verdict lock-order-inversion objects=p frames=one,two
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

struct pair {
	pthread_mutex_t first, second;
};

static void *one(void *arg)
{
	struct pair *p = arg;
	pthread_mutex_lock(&p->first);
	pthread_mutex_lock(&p->second);
	pthread_mutex_unlock(&p->second);
	pthread_mutex_unlock(&p->first);
	reach(1);
	return arg;
}

static void *two(void *arg)
{
	struct pair *p = arg;
	await(1);
	pthread_mutex_lock(&p->second);
	pthread_mutex_lock(&p->first);
	pthread_mutex_unlock(&p->first);
	pthread_mutex_unlock(&p->second);
	return arg;
}

int main(void)
{
	struct pair p = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
	pthread_t t1, t2;
	pthread_create(&t1, NULL, one, &p);
	pthread_create(&t2, NULL, two, &p);
	pthread_join(t1, NULL);
	pthread_join(t2, NULL);
	puts("done");
	return 0;
}
