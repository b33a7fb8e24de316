// A mutex in memory that was never initialised.
// ripstop: verdict use-before-init objects=lock_a frames=main
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
	memset(&lock_a, 0x5a, sizeof lock_a);
	lock_a.__data.__lock = 0;
	pthread_mutex_trylock(&lock_a);
	puts("done");
	return 0;
}
