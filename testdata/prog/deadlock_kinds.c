// Five kinds of mutexes, one thread each, in a ring: inheriting priorities, recursive and taken twice, robust, errorcheck, adaptive.
// ripstop: verdict deadlock objects=ring frames=link_up
// ripstop: hangs
// ripstop: epochs hangs
#define _GNU_SOURCE
#include <pthread.h>
#include "order.h"

enum { KINDS = 5 };

static pthread_mutex_t ring[KINDS];

static void *link_up(void *arg)
{
	long me = (long)arg;
	pthread_mutex_lock(&ring[me]);
	if (me == 1)
		pthread_mutex_lock(&ring[me]);
	meet(KINDS);
	pthread_mutex_lock(&ring[(me + 1) % KINDS]);
	return arg;
}

int main(void)
{
	pthread_t t[KINDS];
	for (int i = 0; i < KINDS; i++) {
		pthread_mutexattr_t a;
		pthread_mutexattr_init(&a);
		switch (i) {
		case 0: pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT); break;
		case 1: pthread_mutexattr_settype(&a, PTHREAD_MUTEX_RECURSIVE); break;
		case 2: pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST); break;
		case 3: pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK); break;
		case 4: pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ADAPTIVE_NP); break;
		}
		pthread_mutex_init(&ring[i], &a);
	}
	for (long i = 0; i < KINDS; i++)
		pthread_create(&t[i], NULL, link_up, (void *)i);
	for (int i = 0; i < KINDS; i++)
		pthread_join(t[i], NULL);
	return 0;
}
