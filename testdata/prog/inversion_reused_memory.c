// Opposite orders of addresses, not of locks: the memory was freed and is another lock the second time.
// ripstop: verdict none
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

struct node {
	pthread_mutex_t lock;
};
static struct node *x, *y;

static void *forth(void *arg)
{
	pthread_mutex_lock(&x->lock);
	pthread_mutex_lock(&y->lock);
	pthread_mutex_unlock(&y->lock);
	pthread_mutex_unlock(&x->lock);
	reach(1);
	return arg;
}

static void *back(void *arg)
{
	await(2);
	pthread_mutex_lock(&y->lock);
	pthread_mutex_lock(&x->lock);
	pthread_mutex_unlock(&x->lock);
	pthread_mutex_unlock(&y->lock);
	return arg;
}

int main(void)
{
	pthread_t t1, t2;
	x = calloc(1, sizeof *x); /* static initialisers by calloc: no init call, no destroy call */
	y = calloc(1, sizeof *y);
	pthread_create(&t1, NULL, forth, NULL);
	pthread_create(&t2, NULL, back, NULL);
	await(1);
	free(x);
	free(y);
	x = calloc(1, sizeof *x);
	y = calloc(1, sizeof *y);
	reach(2);
	pthread_join(t1, NULL);
	pthread_join(t2, NULL);
	free(x);
	free(y);
	puts("done");
	return 0;
}
