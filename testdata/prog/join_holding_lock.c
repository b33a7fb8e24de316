// main joins a thread while it holds the lock that the thread needs.
// ripstop: verdict deadlock objects=config_lock frames=worker,main
// ripstop: hangs
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

static pthread_mutex_t config_lock = PTHREAD_MUTEX_INITIALIZER;

static void *worker(void *arg)
{
	await(1);
	pthread_mutex_lock(&config_lock);
	pthread_mutex_unlock(&config_lock);
	return arg;
}

int main(void)
{
	pthread_t t;
	pthread_create(&t, NULL, worker, NULL);
	pthread_mutex_lock(&config_lock);
	reach(1);
	pthread_join(t, NULL);
	pthread_mutex_unlock(&config_lock);
	return 0;
}
