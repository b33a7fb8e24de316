// C11 threads and mtx_t in opposite orders.
// ripstop: verdict lock-order-inversion objects=lock_a,lock_b frames=one,two
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

static mtx_t lock_a, lock_b;

static int one(void *arg)
{
	(void)arg;
	mtx_lock(&lock_a);
	mtx_lock(&lock_b);
	mtx_unlock(&lock_b);
	mtx_unlock(&lock_a);
	reach(1);
	return 0;
}

static int two(void *arg)
{
	(void)arg;
	await(1);
	mtx_lock(&lock_b);
	mtx_lock(&lock_a);
	mtx_unlock(&lock_a);
	mtx_unlock(&lock_b);
	return 0;
}

int main(void)
{
	thrd_t t1, t2;
	mtx_init(&lock_a, mtx_plain);
	mtx_init(&lock_b, mtx_plain);
	thrd_create(&t1, one, NULL);
	thrd_create(&t2, two, NULL);
	thrd_join(t1, NULL);
	thrd_join(t2, NULL);
	mtx_destroy(&lock_a);
	mtx_destroy(&lock_b);
	puts("done");
	return 0;
}
