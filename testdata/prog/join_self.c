// A thread joins itself.
// ripstop: verdict join-self frames=main
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
	if (pthread_join(pthread_self(), NULL) != EDEADLK)
		return 1;
	puts("done");
	return 0;
}
