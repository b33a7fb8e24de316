// Barriers by phases, with the serial thread, used rightly and destroyed after the last phase.
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

static pthread_barrier_t phase;
static int serials;

static void *work(void *arg)
{
	for (int i = 0; i < 200; i++)
		if (pthread_barrier_wait(&phase) == PTHREAD_BARRIER_SERIAL_THREAD)
			__atomic_add_fetch(&serials, 1, __ATOMIC_SEQ_CST);
	return arg;
}

int main(void)
{
	pthread_t t[3];
	pthread_barrier_init(&phase, NULL, 3);
	for (int i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, work, NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	pthread_barrier_destroy(&phase);
	printf("%d\n", serials);
	return 0;
}
