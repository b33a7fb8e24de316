// A semaphore initialised with more than SEM_VALUE_MAX.
// ripstop: verdict sem-bad-count frames=main
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

#include <limits.h>
int main(void)
{
	sem_t s;
	if (sem_init(&s, 0, (unsigned)SEM_VALUE_MAX + 1) == 0 || errno != EINVAL)
		return 1;
	puts("done");
	return 0;
}
