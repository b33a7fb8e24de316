// A detached thread is joined while it runs.
// ripstop: verdict join-detached frames=main
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

static void *work(void *arg)
{
	await(1);
	reach(2);
	return arg;
}

int main(void)
{
	pthread_t t;
	pthread_create(&t, NULL, work, NULL);
	pthread_detach(t);
	if (pthread_join(t, NULL) != EINVAL)
		return 1;
	reach(1);
	await(2);
	puts("done");
	return 0;
}
