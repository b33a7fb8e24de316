// A barrier for three, but the third thread waits for a lock that one at the barrier holds.
// ripstop: verdict deadlock objects=phase,lock_a frames=arriver,late
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

static pthread_mutex_t lock_a = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t phase;

static void *arriver(void *arg)
{
	if (arg)
		pthread_mutex_lock(&lock_a);
	meet(2);
	reach(1);
	pthread_barrier_wait(&phase);
	return arg;
}

static void *late(void *arg)
{
	await(1);
	pthread_mutex_lock(&lock_a);
	pthread_barrier_wait(&phase);
	return arg;
}

int main(void)
{
	pthread_t t[3];
	pthread_barrier_init(&phase, NULL, 3);
	pthread_create(&t[0], NULL, arriver, &phase);
	pthread_create(&t[1], NULL, arriver, NULL);
	pthread_create(&t[2], NULL, late, NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	return 0;
}
