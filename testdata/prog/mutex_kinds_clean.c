// Recursive, errorcheck, adaptive, robust, priority-inheriting and process-shared mutexes, each used rightly, errors handled.
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

static void *die_locked(void *arg)
{
	pthread_mutex_lock(arg);
	return NULL;
}

int main(void)
{
	pthread_mutexattr_t a;
	pthread_mutex_t m;
	pthread_t t;
	int types[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK, PTHREAD_MUTEX_ADAPTIVE_NP};
	for (int i = 0; i < 4; i++) {
		pthread_mutexattr_init(&a);
		pthread_mutexattr_settype(&a, types[i]);
		pthread_mutex_init(&m, &a);
		pthread_mutex_lock(&m);
		if (types[i] == PTHREAD_MUTEX_RECURSIVE) {
			pthread_mutex_lock(&m);
			pthread_mutex_unlock(&m);
		}
		if (types[i] == PTHREAD_MUTEX_ERRORCHECK && pthread_mutex_lock(&m) != EDEADLK)
			return 1;
		pthread_mutex_unlock(&m);
		if (types[i] == PTHREAD_MUTEX_ERRORCHECK && pthread_mutex_unlock(&m) != EPERM)
			return 2;
		pthread_mutex_destroy(&m);
		pthread_mutexattr_destroy(&a);
	}
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&m, &a);
	pthread_mutex_lock(&m);
	pthread_mutex_unlock(&m);
	pthread_mutex_destroy(&m);
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&m, &a);
	pthread_create(&t, NULL, die_locked, &m);
	pthread_join(t, NULL);
	if (pthread_mutex_lock(&m) != EOWNERDEAD || pthread_mutex_consistent(&m) != 0)
		return 3;
	pthread_mutex_unlock(&m);
	pthread_mutex_destroy(&m);
	puts("done");
	return 0;
}
