// A thread ends and still holds a lock.
// ripstop: verdict exit-holding-lock objects=lock_a frames=forgetful
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


static void *forgetful(void *arg)
{
	pthread_mutex_lock(&lock_a);
	return arg;
}

int main(void)
{
	pthread_t t;
	pthread_create(&t, NULL, forgetful, NULL);
	pthread_join(t, NULL);
	puts("done");
	return 0;
}
