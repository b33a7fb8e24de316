// A ring of four locks and four threads, and three more that come to stand behind it.
// ripstop: verdict deadlock objects=ring frames=link_up
// ripstop: hangs
#include <pthread.h>
#include "order.h"

static pthread_mutex_t ring[4] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static pthread_mutex_t aside = PTHREAD_MUTEX_INITIALIZER;

static void *link_up(void *arg)
{
	long i = (long)arg;
	pthread_mutex_lock(&ring[i]);
	meet(7);
	pthread_mutex_lock(&ring[(i + 1) % 4]);
	return arg;
}

static void *bystander(void *arg)
{
	meet(7);
	pthread_mutex_lock(&aside); /* the first waits for the ring, the others for the first */
	pthread_mutex_lock(&ring[2]);
	pthread_mutex_unlock(&ring[2]);
	pthread_mutex_unlock(&aside);
	return arg;
}

int main(void)
{
	pthread_t t[7];
	for (long i = 0; i < 7; i++)
		pthread_create(&t[i], NULL, i < 4 ? link_up : bystander, (void *)i);
	for (int i = 0; i < 7; i++)
		pthread_join(t[i], NULL);
	return 0;
}
