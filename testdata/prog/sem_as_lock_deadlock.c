// Two binary semaphores used as locks, in opposite orders.
// ripstop: verdict deadlock objects=sem_a,sem_b frames=one,two
// ripstop: hangs
// ripstop: epochs hang
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

static sem_t sem_a, sem_b;

static void warm_up(sem_t *s)
{
	for (int i = 0; i < 8; i++) { /* each thread takes and gives it: it is used as a lock */
		sem_wait(s);
		sem_post(s);
	}
}

static void *one(void *arg)
{
	warm_up(&sem_a), warm_up(&sem_b);
	meet(2);
	sem_wait(&sem_a);
	meet(4);
	sem_wait(&sem_b);
	return arg;
}

static void *two(void *arg)
{
	warm_up(&sem_a), warm_up(&sem_b);
	meet(2);
	sem_wait(&sem_b);
	meet(4);
	sem_wait(&sem_a);
	return arg;
}

int main(void)
{
	pthread_t t1, t2;
	sem_init(&sem_a, 0, 1);
	sem_init(&sem_b, 0, 1);
	pthread_create(&t1, NULL, one, NULL);
	pthread_create(&t2, NULL, two, NULL);
	pthread_join(t1, NULL);
	pthread_join(t2, NULL);
	return 0;
}
