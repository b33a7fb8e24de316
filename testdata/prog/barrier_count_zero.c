// A barrier for nobody.
// ripstop: verdict barrier-bad-count frames=main
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>
#include "order.h"

int main(void)
{
	pthread_barrier_t b;
	if (pthread_barrier_init(&b, NULL, 0) != EINVAL)
		return 1;
	puts("done");
	return 0;
}
