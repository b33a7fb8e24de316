// atexit handlers and a destructor function take locks while a detached thread still uses them.
// ripstop: verdict none
// ripstop: exit 5
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include "order.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void at_exit(void)
{
	pthread_mutex_lock(&lock);
	puts("at exit");
	pthread_mutex_unlock(&lock);
}

static __attribute__((destructor)) void at_the_very_end(void)
{
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
}

static void *busy(void *arg)
{
	pthread_detach(pthread_self());
	reach(1);
	for (;;) {
		pthread_mutex_lock(&lock);
		pthread_mutex_unlock(&lock);
		sched_yield();
	}
	return arg;
}

int main(void)
{
	pthread_t t;
	atexit(at_exit);
	pthread_create(&t, NULL, busy, NULL);
	await(1);
	exit(5);
}
