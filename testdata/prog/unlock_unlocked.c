// A mutex unlocked that nobody has locked.
// ripstop: verdict unlock-not-locked objects=lock_a frames=main
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
	pthread_mutex_unlock(&lock_a);
	puts("done");
	return 0;
}
