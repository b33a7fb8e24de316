// A thread waits on a condition and keeps another lock, which the one who would signal needs first.
// ripstop: verdict hang objects=ready,outer frames=waiter,main
// ripstop: hangs
#include <pthread.h>
#include "order.h"

static pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER, inner = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ready = PTHREAD_COND_INITIALIZER;
static int go;

static void *waiter(void *arg)
{
	pthread_mutex_lock(&outer);
	pthread_mutex_lock(&inner);
	reach(1);
	while (!go)
		pthread_cond_wait(&ready, &inner);
	pthread_mutex_unlock(&inner);
	pthread_mutex_unlock(&outer);
	return arg;
}

int main(void)
{
	pthread_t t;
	pthread_create(&t, NULL, waiter, NULL);
	await(1);
	pthread_mutex_lock(&outer);
	pthread_mutex_lock(&inner);
	go = 1;
	pthread_cond_signal(&ready);
	pthread_mutex_unlock(&inner);
	pthread_mutex_unlock(&outer);
	pthread_join(t, NULL);
	return 0;
}
