// A block freed while another thread holds a mutex in it.
// ripstop: verdict free-locked frames=holder,main
// ripstop: exit 3
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>
#include "order.h"

static void *holder(void *arg)
{
	pthread_mutex_lock(arg);
	reach(1);
	await(2);
	return NULL;
}

int main(void)
{
	pthread_t t;
	pthread_mutex_t *m = malloc(sizeof *m);
	pthread_mutex_init(m, NULL);
	pthread_create(&t, NULL, holder, m);
	await(1);
	free(m);
	_exit(3);
}
