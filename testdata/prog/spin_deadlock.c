// Two spin locks in opposite orders: both threads burn their processors for ever.
// ripstop: verdict deadlock objects=spin_a,spin_b frames=one,two
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

static pthread_spinlock_t spin_a, spin_b;

static void *one(void *arg)
{
	pthread_spin_lock(&spin_a);
	meet(2);
	pthread_spin_lock(&spin_b);
	return arg;
}

static void *two(void *arg)
{
	pthread_spin_lock(&spin_b);
	meet(2);
	pthread_spin_lock(&spin_a);
	return arg;
}

int main(void)
{
	pthread_t t1, t2;
	pthread_spin_init(&spin_a, PTHREAD_PROCESS_PRIVATE);
	pthread_spin_init(&spin_b, PTHREAD_PROCESS_PRIVATE);
	pthread_create(&t1, NULL, one, NULL);
	pthread_create(&t2, NULL, two, NULL);
	pthread_join(t1, NULL);
	pthread_join(t2, NULL);
	return 0;
}
