// Two functions in turn have their locks at the same place of the stack: what is told of those of the second must not be named as the first's. And locks in a frame of a
// thread's own.
// ripstop: verdict lock-order-inversion objects=second frames=one,two
// ripstop: verdict lock-order-inversion objects=mine,lock_a frames=keeper,other_way
#include <pthread.h>
#include <stdio.h>
#include "order.h"

struct pair {
	pthread_mutex_t a, b;
};

static pthread_mutex_t lock_a = PTHREAD_MUTEX_INITIALIZER;

static __attribute__((noinline)) void *one(void *arg)
{
	struct pair *p = arg;
	pthread_mutex_lock(&p->a);
	pthread_mutex_lock(&p->b);
	pthread_mutex_unlock(&p->b);
	pthread_mutex_unlock(&p->a);
	return arg;
}

static __attribute__((noinline)) void *two(void *arg)
{
	struct pair *p = arg;
	pthread_mutex_lock(&p->b);
	pthread_mutex_lock(&p->a);
	pthread_mutex_unlock(&p->a);
	pthread_mutex_unlock(&p->b);
	return arg;
}

// One after the other, or they would deadlock once in a while.
static void *one_first(void *arg)
{
	one(arg);
	reach(1);
	return arg;
}

static void *two_then(void *arg)
{
	await(1);
	two(arg);
	return arg;
}

static void by_thread(void *(*f)(void *), void *arg)
{
	pthread_t t;
	pthread_create(&t, NULL, f, arg);
	pthread_join(t, NULL);
}

static __attribute__((noinline)) void early(void)
{
	struct pair first = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
	by_thread(one, &first);
	by_thread(one, &first);
}

static __attribute__((noinline)) void late(pthread_t *t)
{
	struct pair second = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
	pthread_create(&t[0], NULL, one_first, &second);
	pthread_create(&t[1], NULL, two_then, &second);
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
}

static pthread_mutex_t *shown;

static void *keeper(void *arg)
{
	pthread_mutex_t mine = PTHREAD_MUTEX_INITIALIZER;
	shown = &mine;
	pthread_mutex_lock(&mine);
	pthread_mutex_lock(&lock_a);
	pthread_mutex_unlock(&lock_a);
	pthread_mutex_unlock(&mine);
	reach(2);
	await(3);
	return arg;
}

static void *other_way(void *arg)
{
	await(2);
	pthread_mutex_lock(&lock_a);
	pthread_mutex_lock(shown);
	pthread_mutex_unlock(shown);
	pthread_mutex_unlock(&lock_a);
	reach(3);
	return arg;
}

int main(void)
{
	pthread_t t[2];
	early();
	late(t);
	pthread_create(&t[0], NULL, keeper, NULL);
	pthread_create(&t[1], NULL, other_way, NULL);
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
	puts("done");
	return 0;
}
