// A ring of three locks and three blocked threads.
// ripstop: verdict deadlock objects=lock_a,lock_b,lock_c frames=grab
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

static pthread_mutex_t lock_a = PTHREAD_MUTEX_INITIALIZER, lock_b = PTHREAD_MUTEX_INITIALIZER, lock_c = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t *ring[] = {&lock_a, &lock_b, &lock_c};

static void *grab(void *arg)
{
	long i = (long)arg;
	pthread_mutex_lock(ring[i]);
	meet(3);
	pthread_mutex_lock(ring[(i + 1) % 3]);
	return arg;
}

int main(void)
{
	pthread_t t[3];
	for (long i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, grab, (void *)i);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	return 0;
}
