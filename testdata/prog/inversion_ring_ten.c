// A ring of ten locks, each pair of neighbours taken by one thread.
// ripstop: verdict lock-order-inversion objects=ring frames=link_up
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

#define N 10
static pthread_mutex_t ring[N];

static void *link_up(void *arg)
{
	long i = (long)arg;
	await((int)i);
	pthread_mutex_lock(&ring[i]);
	pthread_mutex_lock(&ring[(i + 1) % N]);
	pthread_mutex_unlock(&ring[(i + 1) % N]);
	pthread_mutex_unlock(&ring[i]);
	reach((int)i + 1);
	return arg;
}

int main(void)
{
	pthread_t t[N];
	for (int i = 0; i < N; i++)
		pthread_mutex_init(&ring[i], NULL);
	for (long i = 0; i < N; i++)
		pthread_create(&t[i], NULL, link_up, (void *)i);
	for (int i = 0; i < N; i++)
		pthread_join(t[i], NULL);
	puts("done");
	return 0;
}
