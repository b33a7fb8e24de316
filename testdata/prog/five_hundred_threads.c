// Five hundred threads alive at once.
// ripstop: verdict none
// ripstop: runs 3
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

#define N 500
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int count;

static void *work(void *arg)
{
	pthread_mutex_lock(&lock);
	count++;
	pthread_mutex_unlock(&lock);
	meet(N);
	return arg;
}

int main(void)
{
	static pthread_t t[N];
	pthread_attr_t a;
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 65536);
	for (int i = 0; i < N; i++)
		if (pthread_create(&t[i], &a, work, NULL))
			return 1;
	for (int i = 0; i < N; i++)
		pthread_join(t[i], NULL);
	printf("%d\n", count);
	return 0;
}
