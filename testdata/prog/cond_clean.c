// Producers and consumers with two conditions, used rightly.
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
static pthread_cond_t not_empty = PTHREAD_COND_INITIALIZER, not_full = PTHREAD_COND_INITIALIZER;
static int queue[4], used;
static long sum;

static void *produce(void *arg)
{
	for (int i = 1; i <= 1000; i++) {
		pthread_mutex_lock(&lock);
		while (used == 4)
			pthread_cond_wait(&not_full, &lock);
		queue[used++] = i;
		pthread_cond_signal(&not_empty);
		pthread_mutex_unlock(&lock);
	}
	return arg;
}

static void *consume(void *arg)
{
	for (int i = 0; i < 1000; i++) {
		pthread_mutex_lock(&lock);
		while (used == 0) {
			struct timespec late;
			clock_gettime(CLOCK_REALTIME, &late);
			late.tv_sec += 60;
			pthread_cond_timedwait(&not_empty, &lock, &late);
		}
		sum += queue[--used];
		pthread_cond_signal(&not_full);
		pthread_mutex_unlock(&lock);
	}
	return arg;
}

int main(void)
{
	pthread_t t[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, i % 2 ? consume : produce, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	printf("%ld\n", sum);
	return 0;
}
