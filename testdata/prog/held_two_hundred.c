// Two hundred locks held at once, always in the order of their addresses.
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

#define N 200
static pthread_mutex_t locks[N];

static void *work(void *arg)
{
	for (int k = 0; k < 20; k++) {
		for (int i = 0; i < N; i++)
			pthread_mutex_lock(&locks[i]);
		for (int i = 0; i < N; i++)
			pthread_mutex_unlock(&locks[i]);
	}
	return arg;
}

int main(void)
{
	pthread_t t[3];
	for (int i = 0; i < N; i++)
		pthread_mutex_init(&locks[i], NULL);
	for (int i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, work, NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	puts("done");
	return 0;
}
