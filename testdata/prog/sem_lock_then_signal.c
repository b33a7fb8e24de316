// A binary semaphore that is used as a lock for a while, then taken twice by one thread, with a second one behind it, until a third thread
// posts it: how Python waits. No lock, no owner, no finding.
// ripstop: verdict none
// ripstop: epochs hangs
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "blocked.h"
#include "order.h"

static sem_t sem;
static volatile pid_t tids[2];

static void *twice(void *arg)
{
	for (int i = 0; i < 20; i++) {
		sem_wait(&sem);
		sem_post(&sem);
	}
	sem_wait(&sem);
	tids[0] = (pid_t)syscall(SYS_gettid);
	meet(3);
	sem_wait(&sem);
	return arg;
}

static void *behind(void *arg)
{
	tids[1] = (pid_t)syscall(SYS_gettid);
	meet(3);
	await_blocked_on(tids[0], &sem, sizeof sem);
	sem_wait(&sem);
	return arg;
}

int main(void)
{
	pthread_t t1, t2;
	sem_init(&sem, 0, 1);
	pthread_create(&t1, NULL, twice, NULL);
	pthread_create(&t2, NULL, behind, NULL);
	meet(3);
	await_blocked_on(tids[0], &sem, sizeof sem);
	await_blocked_on(tids[1], &sem, sizeof sem);
	usleep(200 * 1000); /* so that ripstop looks at them as they are; native runs would do without */
	sem_post(&sem);
	sem_post(&sem);
	pthread_join(t1, NULL);
	pthread_join(t2, NULL);
	puts("done");
	return 0;
}
