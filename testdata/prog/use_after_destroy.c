// A mutex locked after it was destroyed.
// ripstop: verdict use-after-destroy objects=lock_a frames=main
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
	pthread_mutex_init(&lock_a, NULL);
	pthread_mutex_destroy(&lock_a);
	if (pthread_mutex_lock(&lock_a) != EINVAL)
		return 1;
	puts("done");
	return 0;
}
