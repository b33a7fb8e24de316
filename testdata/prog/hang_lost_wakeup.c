// The condition is signalled before the waiter waits, who does not look first: the wake-up is lost.
// ripstop: verdict hang objects=ready frames=waiter
// ripstop: hangs
#include <pthread.h>
#include "order.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ready = PTHREAD_COND_INITIALIZER;

static void *waiter(void *arg)
{
	await(1);
	pthread_mutex_lock(&lock);
	pthread_cond_wait(&ready, &lock);
	pthread_mutex_unlock(&lock);
	return arg;
}

int main(void)
{
	pthread_t t;
	pthread_create(&t, NULL, waiter, NULL);
	pthread_mutex_lock(&lock);
	pthread_cond_signal(&ready);
	pthread_mutex_unlock(&lock);
	reach(1);
	pthread_join(t, NULL);
	return 0;
}
