// A spin lock and a mutex in opposite orders, one thread after the other.
// ripstop: verdict lock-order-inversion objects=counter,table frames=one,two
#include <pthread.h>
#include <stdio.h>
#include "order.h"

static pthread_spinlock_t counter;
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;

static void *one(void *arg)
{
	pthread_spin_lock(&counter);
	pthread_mutex_lock(&table);
	pthread_mutex_unlock(&table);
	pthread_spin_unlock(&counter);
	reach(1);
	return arg;
}

static void *two(void *arg)
{
	await(1);
	pthread_mutex_lock(&table);
	pthread_spin_lock(&counter);
	pthread_spin_unlock(&counter);
	pthread_mutex_unlock(&table);
	return arg;
}

int main(void)
{
	pthread_t t1, t2;
	pthread_spin_init(&counter, PTHREAD_PROCESS_PRIVATE);
	pthread_create(&t1, NULL, one, NULL);
	pthread_create(&t2, NULL, two, NULL);
	pthread_join(t1, NULL);
	pthread_join(t2, NULL);
	puts("done");
	return 0;
}
