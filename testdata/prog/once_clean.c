// pthread_once from many threads, and keys with destructors that take a lock.
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

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int inits, destroyed;

static void forget(void *p)
{
	pthread_mutex_lock(&lock);
	destroyed++;
	pthread_mutex_unlock(&lock);
	free(p);
}

static void init(void)
{
	inits++;
	pthread_key_create(&key, forget);
}

static void *work(void *arg)
{
	pthread_once(&once, init);
	pthread_setspecific(key, malloc(16));
	return arg;
}

int main(void)
{
	pthread_t t[8];
	for (int i = 0; i < 8; i++)
		pthread_create(&t[i], NULL, work, NULL);
	for (int i = 0; i < 8; i++)
		pthread_join(t[i], NULL);
	printf("%d %d\n", inits, destroyed);
	return 0;
}
