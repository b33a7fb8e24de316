// A semaphore posted beyond its greatest value.
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
	sem_init(&s, 0, SEM_VALUE_MAX);
	if (sem_post(&s) == 0 || errno != EOVERFLOW)
		return 1;
	puts("done");
	return 0;
}
