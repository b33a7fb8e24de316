// transfer(a,b) and transfer(b,a) at the same time.
// ripstop: verdict deadlock objects=checking,savings frames=transfer
// ripstop: hangs
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

struct account {
	pthread_mutex_t lock;
	long balance;
};
static struct account checking = {PTHREAD_MUTEX_INITIALIZER, 100}, savings = {PTHREAD_MUTEX_INITIALIZER, 100};

static void transfer(struct account *from, struct account *to, long amount)
{
	pthread_mutex_lock(&from->lock);
	meet(2);
	pthread_mutex_lock(&to->lock);
	from->balance -= amount;
	to->balance += amount;
	pthread_mutex_unlock(&to->lock);
	pthread_mutex_unlock(&from->lock);
}

static void *one(void *arg)
{
	transfer(&checking, &savings, 10);
	reach(1);
	return arg;
}

static void *two(void *arg)
{
	;
	transfer(&savings, &checking, 10);
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
