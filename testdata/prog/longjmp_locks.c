// A function leaves by longjmp with a lock of its own frame held; the next one has another lock at the same address, and gives it back. What the thread
// takes after that, it takes with nothing held.
// ripstop: verdict none
#include <pthread.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include "order.h"

static jmp_buf out;
static pthread_mutex_t table = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t *volatile places[2];

static void __attribute__((noinline)) frame(int leave)
{
	pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
	pthread_mutex_lock(&own);
	places[!leave] = &own;
	if (leave)
		longjmp(out, 1);
	pthread_mutex_unlock(&own);
}

/* Far below whatever the thread calls later. */
static void __attribute__((noinline)) deep(int leave)
{
	volatile char room[16 << 10];
	room[0] = 0;
	frame(leave);
	room[1] = room[0];
}

static void *one(void *arg)
{
	if (!setjmp(out))
		deep(1);
	deep(0);
	if (places[0] != places[1])
		exit(99); /* not the case that this is about */
	pthread_mutex_lock(&table);
	pthread_mutex_unlock(&table);
	reach(1);
	await(2);
	return arg;
}

static void *two(void *arg)
{
	await(1);
	pthread_mutex_t *again = places[1]; /* a third lock at that address of the first thread's stack, which nobody uses now */
	*again = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	pthread_mutex_lock(&table);
	pthread_mutex_lock(again);
	pthread_mutex_unlock(again);
	pthread_mutex_unlock(&table);
	reach(2);
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
