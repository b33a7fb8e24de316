// A thread that ended and was neither joined nor detached.
// ripstop: verdict thread-leak frames=main
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

static int tid;

static void *work(void *arg)
{
	__atomic_store_n(&tid, gettid(), __ATOMIC_SEQ_CST);
	return arg;
}

int main(void)
{
	char path[64];
	pthread_t t;
	pthread_create(&t, NULL, work, NULL);
	while (!__atomic_load_n(&tid, __ATOMIC_SEQ_CST))
		sched_yield();
	snprintf(path, sizeof path, "/proc/self/task/%d", tid);
	while (access(path, F_OK) == 0) /* it has ended when its entry is gone */
		sched_yield();
	puts("done");
	return 0;
}
