// A thread is detached twice.
// ripstop: verdict double-detach frames=main
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include "order.h"

static void *work(void *arg)
{
	await(1);
	return arg;
}

int main(void)
{
	pthread_t t;
	pthread_create(&t, NULL, work, NULL);
	pthread_detach(t);
	int err = pthread_detach(t);
	reach(1);
	puts(err == EINVAL ? "refused" : "not refused");
	return 0;
}
