// A permit that its taker gives back itself five times; the sixth time it is passed on with a job to another thread, and the taker waits for a thread
// that waits for the permit. Whoever posts a semaphore may do so: no deadlock.
// ripstop: verdict none
// ripstop: epochs hangs
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <unistd.h>
#include "blocked.h"

static sem_t permit;
static volatile pid_t tids[2];
static pthread_t other;

static void *want_permit(void *arg)
{
	tids[0] = gettid();
	meet(3);
	await(1);
	sem_wait(&permit);
	sem_post(&permit);
	return arg;
}

static void *taker(void *arg)
{
	tids[1] = gettid();
	meet(3);
	for (int i = 0; i < 5; i++) {
		sem_wait(&permit);
		sem_post(&permit);
	}
	sem_wait(&permit);
	reach(1);
	pthread_join(other, NULL);
	return arg;
}

int main(void)
{
	pthread_t t;
	sem_init(&permit, 0, 1);
	pthread_create(&other, NULL, want_permit, NULL);
	pthread_create(&t, NULL, taker, NULL);
	meet(3);
	await(1);
	await_blocked_on(tids[0], &permit, sizeof permit);
	await_blocked(tids[1]);
	usleep(200 * 1000); /* so that ripstop looks at them as they are; native runs would do without */
	sem_post(&permit);
	pthread_join(t, NULL);
	puts("done");
	return 0;
}
