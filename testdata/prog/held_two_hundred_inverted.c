// Two hundred locks held at once, and another thread takes the last before the first.
// ripstop: verdict lock-order-inversion objects=locks frames=all,two_of_them
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

#define N 200
static pthread_mutex_t locks[N];

static void *all(void *arg)
{
	for (int i = 0; i < N; i++)
		pthread_mutex_lock(&locks[i]);
	for (int i = 0; i < N; i++)
		pthread_mutex_unlock(&locks[i]);
	reach(1);
	return arg;
}

static void *two_of_them(void *arg)
{
	await(1);
	pthread_mutex_lock(&locks[N - 1]);
	pthread_mutex_lock(&locks[0]);
	pthread_mutex_unlock(&locks[0]);
	pthread_mutex_unlock(&locks[N - 1]);
	return arg;
}

int main(void)
{
	pthread_t t1, t2;
	for (int i = 0; i < N; i++)
		pthread_mutex_init(&locks[i], NULL);
	pthread_create(&t1, NULL, all, NULL);
	pthread_create(&t2, NULL, two_of_them, NULL);
	pthread_join(t1, NULL);
	pthread_join(t2, NULL);
	puts("done");
	return 0;
}
