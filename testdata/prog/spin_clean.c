// Spin locks taken in one order by four threads.
// ripstop: verdict none
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

static pthread_spinlock_t spin_a, spin_b;
static long count;

static void *work(void *arg)
{
	for (int i = 0; i < 300; i++) {
		pthread_spin_lock(&spin_a);
		if (pthread_spin_trylock(&spin_b) == 0) {
			count++;
			pthread_spin_unlock(&spin_b);
		}
		pthread_spin_unlock(&spin_a);
	}
	return arg;
}

int main(void)
{
	pthread_t t[4];
	pthread_spin_init(&spin_a, PTHREAD_PROCESS_PRIVATE);
	pthread_spin_init(&spin_b, PTHREAD_PROCESS_PRIVATE);
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, work, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	pthread_spin_destroy(&spin_a);
	pthread_spin_destroy(&spin_b);
	printf("%ld\n", count);
	return 0;
}
