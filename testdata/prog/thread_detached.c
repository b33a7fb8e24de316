// Detached threads, by attribute, by themselves and by their creator.
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

static int left = 3;

static void *work(void *arg)
{
	if (arg)
		pthread_detach(pthread_self());
	__atomic_sub_fetch(&left, 1, __ATOMIC_SEQ_CST);
	return arg;
}

int main(void)
{
	pthread_t t;
	pthread_attr_t a;
	pthread_attr_init(&a);
	pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED);
	pthread_create(&t, &a, work, NULL);
	pthread_attr_destroy(&a);
	pthread_create(&t, NULL, work, &left);
	pthread_create(&t, NULL, work, NULL);
	pthread_detach(t);
	while (__atomic_load_n(&left, __ATOMIC_SEQ_CST))
		sched_yield();
	puts("done");
	return 0;
}
