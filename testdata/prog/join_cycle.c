// Two threads join each other.
// ripstop: verdict deadlock frames=one,two
// ripstop: hangs
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

static pthread_t t1, t2;
static pthread_mutex_t kept = PTHREAD_MUTEX_INITIALIZER; /* main waits behind the circle */

static void *one(void *arg)
{
	pthread_mutex_lock(&kept);
	meet(3);
	pthread_join(t2, NULL);
	return arg;
}

static void *two(void *arg)
{
	meet(3);
	pthread_join(t1, NULL);
	return arg;
}

int main(void)
{
	pthread_create(&t1, NULL, one, NULL);
	pthread_create(&t2, NULL, two, NULL);
	meet(3);
	pthread_mutex_lock(&kept);
	return 0;
}
