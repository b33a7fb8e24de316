// A barrier destroyed while a thread waits at it for another who has not come: glibc's destroy waits with it, and a third thread gives up.
// ripstop: verdict barrier-destroy-in-use objects=phase frames=main
// ripstop: exit 4
// ripstop: epochs hangs
#define _GNU_SOURCE
#include <pthread.h>
#include "blocked.h"

static pthread_barrier_t phase;
static pid_t waiter_tid;

static void *waiter(void *arg)
{
	waiter_tid = gettid();
	reach(1);
	pthread_barrier_wait(&phase);
	return arg;
}

static void *watchdog(void *arg)
{
	await(2);
	await_blocked_on(getpid(), &phase, sizeof phase);
	_exit(4);
	return arg;
}

int main(void)
{
	pthread_t t, dog;
	pthread_barrier_init(&phase, NULL, 2);
	pthread_create(&t, NULL, waiter, NULL);
	pthread_create(&dog, NULL, watchdog, NULL);
	await(1);
	await_blocked_on(waiter_tid, &phase, sizeof phase);
	reach(2);
	pthread_barrier_destroy(&phase);
	return 0;
}
