// Five thousand locks in blocks of their own, more than the small table of objects holds, twice in the same memory and in opposite orders: they are others the second time. One of them is freed
// while it is locked, ten calls down: a free that is spoken of has its whole stack.
// ripstop: verdict free-locked frames=all
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { LOCKS = 5000 };
static pthread_mutex_t *lock[LOCKS];

static __attribute__((noinline)) int down(int depth, pthread_mutex_t *m)
{
	if (depth == 0) {
		free(m);
		return 0;
	}
	return down(depth - 1, m) + 1;
}

static void all(int from, int step, int left_locked)
{
	for (int i = 0; i < LOCKS; i++) {
		lock[i] = malloc(sizeof *lock[i]);
		pthread_mutex_init(lock[i], NULL);
	}
	for (int i = from; i + step >= 0 && i + step < LOCKS; i += step) {
		pthread_mutex_lock(lock[i]);
		pthread_mutex_lock(lock[i + step]);
		pthread_mutex_unlock(lock[i + step]);
		pthread_mutex_unlock(lock[i]);
	}
	if (left_locked >= 0)
		pthread_mutex_lock(lock[left_locked]);
	for (int i = 0; i < LOCKS; i++)
		if (i == left_locked)
			down(10, lock[i]);
		else
			free(lock[i]);
}

static void *other(void *arg)
{
	all(LOCKS - 1, -1, 4321);
	return arg;
}

int main(void)
{
	pthread_t t;
	all(0, 1, -1);
	pthread_create(&t, NULL, other, NULL);
	pthread_join(t, NULL);
	puts("done");
	return 0;
}
