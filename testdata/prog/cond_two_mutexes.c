// Two threads wait on one condition with different mutexes, from the same instant on.
// ripstop: verdict cond-two-mutexes objects=ready frames=waiter
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

static pthread_mutex_t lock_a = PTHREAD_MUTEX_INITIALIZER, lock_b = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ready = PTHREAD_COND_INITIALIZER;
static int go;

static void *waiter(void *arg)
{
	pthread_mutex_t *m = arg;
	pthread_mutex_lock(m);
	meet(2);
	while (!__atomic_load_n(&go, __ATOMIC_SEQ_CST))
		pthread_cond_wait(&ready, m);
	pthread_mutex_unlock(m);
	return arg;
}

int main(void)
{
	pthread_t t1, t2;
	pthread_create(&t1, NULL, waiter, &lock_a);
	pthread_create(&t2, NULL, waiter, &lock_b);
	while (__atomic_load_n(&order_met, __ATOMIC_SEQ_CST) < 2)
		sched_yield();
	pthread_mutex_lock(&lock_a); /* both are in the wait once their mutex can be had */
	pthread_mutex_lock(&lock_b);
	__atomic_store_n(&go, 1, __ATOMIC_SEQ_CST);
	pthread_cond_broadcast(&ready);
	pthread_mutex_unlock(&lock_b);
	pthread_mutex_unlock(&lock_a);
	pthread_join(t1, NULL);
	pthread_join(t2, NULL);
	puts("done");
	return 0;
}
