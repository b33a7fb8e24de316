// main returns while other threads run and hold locks: the end of the process, not a leak.
// ripstop: verdict none
// ripstop: exit 3
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

static void *forever(void *arg)
{
	for (;;) {
		pthread_mutex_lock(&lock);
		reach(1);
		pthread_mutex_unlock(&lock);
	}
	return arg;
}

static void last(void)
{
	pthread_mutex_lock(&lock);
	puts("atexit");
	pthread_mutex_unlock(&lock);
}

int main(void)
{
	pthread_t t;
	atexit(last);
	pthread_create(&t, NULL, forever, NULL);
	await(1);
	return 3;
}
