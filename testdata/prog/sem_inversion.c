// Two semaphores used as locks in opposite orders, one thread after the other.
// ripstop: verdict lock-order-inversion objects=first,second frames=one,two
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include "order.h"

static sem_t first, second;

static void *one(void *arg)
{
	sem_wait(&first);
	sem_wait(&second);
	sem_post(&second);
	sem_post(&first);
	reach(1);
	return arg;
}

static void *two(void *arg)
{
	await(1);
	sem_wait(&second);
	sem_wait(&first);
	sem_post(&first);
	sem_post(&second);
	return arg;
}

int main(void)
{
	pthread_t t1, t2;
	sem_init(&first, 0, 1);
	sem_init(&second, 0, 1);
	pthread_create(&t1, NULL, one, NULL);
	pthread_create(&t2, NULL, two, NULL);
	pthread_join(t1, NULL);
	pthread_join(t2, NULL);
	puts("done");
	return 0;
}
