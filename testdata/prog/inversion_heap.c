// The locks are in heap objects: named by the block, its allocation, and the offset.
// ripstop: verdict lock-order-inversion frames=one,two,new_node
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
	long key;
	pthread_mutex_t lock;
};
static struct node *left, *right;

static struct node *__attribute__((noinline)) new_node(long key)
{
	struct node *n = malloc(sizeof *n);
	n->key = key;
	pthread_mutex_init(&n->lock, NULL);
	return n;
}

static void *one(void *arg)
{
	pthread_mutex_lock(&left->lock);
	pthread_mutex_lock(&right->lock);
	pthread_mutex_unlock(&right->lock);
	pthread_mutex_unlock(&left->lock);
	reach(1);
	return arg;
}

static void *two(void *arg)
{
	await(1);
	pthread_mutex_lock(&right->lock);
	pthread_mutex_lock(&left->lock);
	pthread_mutex_unlock(&left->lock);
	pthread_mutex_unlock(&right->lock);
	return arg;
}

int main(void)
{
	pthread_t t1, t2;
	left = new_node(1);
	right = new_node(2);
	pthread_create(&t1, NULL, one, NULL);
	pthread_create(&t2, NULL, two, NULL);
	pthread_join(t1, NULL);
	pthread_join(t2, NULL);
	pthread_mutex_destroy(&left->lock);
	pthread_mutex_destroy(&right->lock);
	free(left);
	free(right);
	puts("done");
	return 0;
}
