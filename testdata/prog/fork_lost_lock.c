// The child of a fork wants a lock that a thread held which does not exist in the child.
// ripstop: verdict deadlock-after-fork objects=lock frames=main
// ripstop: hangs
// ripstop: epochs hangs
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

#include <sys/wait.h>
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *holder(void *arg)
{
	pthread_mutex_lock(&lock);
	reach(1);
	await(2);
	pthread_mutex_unlock(&lock);
	return arg;
}

int main(void)
{
	pthread_t t;
	pthread_create(&t, NULL, holder, NULL);
	await(1);
	pid_t p = fork();
	if (p == 0) {
		pthread_mutex_lock(&lock);
		_exit(0);
	}
	reach(2);
	pthread_join(t, NULL);
	waitpid(p, NULL, 0);
	return 0;
}
