// A condition wait with a mutex that the thread does not hold.
// ripstop: verdict cond-wait-unlocked objects=lock_a frames=main
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
static pthread_cond_t ready = PTHREAD_COND_INITIALIZER;

int main(void)
{
	struct timespec soon;
	clock_gettime(CLOCK_REALTIME, &soon);
	pthread_cond_timedwait(&ready, &lock_a, &soon);
	puts("done");
	return 0;
}
