// Two inversions, one of which is suppressed by a function.
// ripstop: verdict lock-order-inversion objects=lock_a,lock_b frames=other_back
// ripstop: symbols
// ripstop: flags --suppressions {src}/suppressed_some.supp
#include <pthread.h>
#include <stdio.h>
#include "order.h"

static pthread_mutex_t lock_a = PTHREAD_MUTEX_INITIALIZER, lock_b = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t lock_c = PTHREAD_MUTEX_INITIALIZER, lock_d = PTHREAD_MUTEX_INITIALIZER;

static __attribute__((noipa)) void both(pthread_mutex_t *x, pthread_mutex_t *y)
{
	pthread_mutex_lock(x);
	pthread_mutex_lock(y);
	pthread_mutex_unlock(y);
	pthread_mutex_unlock(x);
}

static __attribute__((noipa)) void other_back(void)
{
	both(&lock_b, &lock_a);
	reach(2);
}

static __attribute__((noipa)) void tolerated_back(void)
{
	both(&lock_d, &lock_c);
	reach(3);
}

static void *one(void *arg)
{
	both(&lock_a, &lock_b);
	both(&lock_c, &lock_d);
	reach(1);
	return arg;
}

static void *two(void *arg)
{
	await(1);
	other_back();
	tolerated_back();
	return arg;
}

int main(void)
{
	pthread_t t1, t2;
	pthread_create(&t1, NULL, one, NULL);
	pthread_create(&t2, NULL, two, NULL);
	pthread_join(t1, NULL);
	pthread_join(t2, NULL);
	puts("done");
	return 0;
}
