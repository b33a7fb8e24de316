// A mutex destroyed and initialised again: right.
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

static pthread_mutex_t lock_a = PTHREAD_MUTEX_INITIALIZER;

int main(void)
{
	for (int i = 0; i < 100; i++) {
		pthread_mutex_init(&lock_a, NULL);
		pthread_mutex_lock(&lock_a);
		pthread_mutex_unlock(&lock_a);
		pthread_mutex_destroy(&lock_a);
	}
	lock_a = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	pthread_mutex_lock(&lock_a);
	pthread_mutex_unlock(&lock_a);
	puts("done");
	return 0;
}
