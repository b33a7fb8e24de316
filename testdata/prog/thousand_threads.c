// A thousand short threads, each taking a lock, forty at a time.
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

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int count;

static void *work(void *arg)
{
	pthread_mutex_lock(&lock);
	count++;
	pthread_mutex_unlock(&lock);
	return arg;
}

int main(void)
{
	for (int round = 0; round < 25; round++) {
		pthread_t t[40];
		for (int i = 0; i < 40; i++)
			pthread_create(&t[i], NULL, work, NULL);
		for (int i = 0; i < 40; i++)
			pthread_join(t[i], NULL);
	}
	printf("%d\n", count);
	return 0;
}
