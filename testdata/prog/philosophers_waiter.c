// Dining philosophers with a waiter who lets one at a time reach for forks: a gate lock, no deadlock possible.
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

static pthread_mutex_t waiter = PTHREAD_MUTEX_INITIALIZER;
#define N 5
static pthread_mutex_t forks[N];

static void *philosopher(void *arg)
{
	long i = (long)arg;
	for (int k = 0; k < 1000; k++) {
		pthread_mutex_lock(&waiter);
		pthread_mutex_lock(&forks[i]);
		pthread_mutex_lock(&forks[(i + 1) % N]);
		pthread_mutex_unlock(&waiter);
		pthread_mutex_unlock(&forks[(i + 1) % N]);
		pthread_mutex_unlock(&forks[i]);
	}
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
