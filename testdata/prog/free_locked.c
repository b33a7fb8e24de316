// A block freed while a mutex in it is locked.
// ripstop: verdict free-locked frames=main
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

int main(void)
{
	pthread_mutex_t *m = malloc(sizeof *m);
	pthread_mutex_init(m, NULL);
	pthread_mutex_lock(m);
	free(m);
	puts("done");
	return 0;
}
