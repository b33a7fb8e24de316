// Semaphores that hand work over: posted by another thread than the one that waited. No lock, no owner, no finding.
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

static sem_t ping, pong;

static void *one(void *arg)
{
	for (int i = 0; i < 500; i++) {
		sem_wait(&ping);
		sem_post(&pong);
	}
	return arg;
}

static void *two(void *arg)
{
	for (int i = 0; i < 500; i++) {
		sem_post(&ping);
		sem_wait(&pong);
	}
	return arg;
}

int main(void)
{
	pthread_t t1, t2;
	sem_init(&ping, 0, 0);
	sem_init(&pong, 0, 0);
	pthread_create(&t1, NULL, one, NULL);
	pthread_create(&t2, NULL, two, NULL);
	pthread_join(t1, NULL);
	pthread_join(t2, NULL);
	sem_destroy(&ping);
	sem_destroy(&pong);
	puts("done");
	return 0;
}
