// A semaphore destroyed while a thread waits on it.
// ripstop: verdict destroy-waited objects=items frames=main
// ripstop: epochs hangs
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include "blocked.h"

static sem_t items;
static pid_t waiter_tid;

static void *waiter(void *arg)
{
	waiter_tid = gettid();
	reach(1);
	sem_wait(&items);
	return arg;
}

int main(void)
{
	pthread_t t;
	sem_init(&items, 0, 0);
	pthread_create(&t, NULL, waiter, NULL);
	await(1);
	await_blocked_on(waiter_tid, &items, sizeof items);
	sem_destroy(&items);
	pthread_cancel(t);
	pthread_join(t, NULL);
	puts("done");
	return 0;
}
