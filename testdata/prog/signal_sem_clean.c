// A signal handler posts a semaphore that main waits for.
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

static sem_t got;

static void handler(int sig)
{
	(void)sig;
	sem_post(&got);
}

static void *sender(void *arg)
{
	for (int i = 0; i < 50; i++) {
		kill(getpid(), SIGUSR1);
		sched_yield();
	}
	reach(1);
	return arg;
}

int main(void)
{
	pthread_t t;
	sem_init(&got, 0, 0);
	signal(SIGUSR1, handler);
	pthread_create(&t, NULL, sender, NULL);
	while (sem_wait(&got) != 0)
		;
	pthread_join(t, NULL);
	puts("done");
	return 0;
}
