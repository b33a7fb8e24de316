// Dining philosophers one after the other: nobody waits, but the ring is there.
// ripstop: verdict lock-order-inversion objects=forks frames=philosopher
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

#define N 5
static pthread_mutex_t forks[N];

static void *philosopher(void *arg)
{
	long i = (long)arg;
	await((int)i);
	pthread_mutex_lock(&forks[i]);
	pthread_mutex_lock(&forks[(i + 1) % N]);
	pthread_mutex_unlock(&forks[(i + 1) % N]);
	pthread_mutex_unlock(&forks[i]);
	reach((int)i + 1);
	return arg;
}

int main(void)
{
	pthread_t t[N];
	for (int i = 0; i < N; i++)
		pthread_mutex_init(&forks[i], NULL);
	for (long i = 0; i < N; i++)
		pthread_create(&t[i], NULL, philosopher, (void *)i);
	for (int i = 0; i < N; i++)
		pthread_join(t[i], NULL);
	for (int i = 0; i < N; i++)
		pthread_mutex_destroy(&forks[i]);
	puts("everybody has eaten");
	return 0;
}
