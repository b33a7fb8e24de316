// A condition that is used with another mutex as soon as all who waited with the former one have been signalled, while they have yet to leave: POSIX
// binds a condition to a mutex only as long as a thread is blocked on it.
// ripstop: verdict none
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include "order.h"

enum { ROUNDS = 300, WAITERS = 3 };

static pthread_mutex_t lock[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static int waiting, done, woken;

// Waits for the round to be done, with the round's mutex.
static void wait_for(int round)
{
	pthread_mutex_t *m = &lock[round % 2];
	pthread_mutex_lock(m);
	__atomic_add_fetch(&waiting, 1, __ATOMIC_SEQ_CST);
	while (done <= round)
		pthread_cond_wait(&turn, m);
	woken++;
	pthread_mutex_unlock(m);
}

static void *waiter(void *arg)
{
	for (int i = 0; i < ROUNDS; i++)
		wait_for(i);
	return arg;
}

int main(void)
{
	pthread_t t[WAITERS];
	for (int i = 0; i < WAITERS; i++)
		pthread_create(&t[i], NULL, waiter, NULL);
	for (int i = 0; i < ROUNDS; i++) {
		while (__atomic_load_n(&waiting, __ATOMIC_SEQ_CST) < WAITERS * (i + 1))
			sched_yield();
		pthread_mutex_lock(&lock[i % 2]); /* all are in the wait once their mutex can be had */
		done = i + 1;
		pthread_cond_broadcast(&turn);
		pthread_mutex_unlock(&lock[i % 2]);
	}
	for (int i = 0; i < WAITERS; i++)
		pthread_join(t[i], NULL);
	printf("%d\n", woken);
	return 0;
}
