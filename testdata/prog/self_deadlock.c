// A normal mutex locked twice by its owner.
// ripstop: verdict self-deadlock objects=cache_lock frames=lookup
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

static pthread_mutex_t cache_lock = PTHREAD_MUTEX_INITIALIZER;

static void __attribute__((noinline)) lookup(void)
{
	pthread_mutex_lock(&cache_lock);
	puts("not reached");
	pthread_mutex_unlock(&cache_lock);
}

int main(void)
{
	pthread_mutex_lock(&cache_lock);
	lookup();
	pthread_mutex_unlock(&cache_lock);
	return 0;
}
