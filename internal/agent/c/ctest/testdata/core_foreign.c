// Threads that glibc makes for itself use locks: timers, name look-ups.
#define _GNU_SOURCE
#include <netdb.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

static sem_t done;
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static void expired(union sigval v)
{
	(void)v;
	pthread_mutex_lock(&m);
	pthread_mutex_unlock(&m);
	sem_post(&done);
}
int main(void)
{
	sem_init(&done, 0, 0);
	struct sigevent ev = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = expired};
	timer_t t;
	struct itimerspec once = {{0}, {0, 1000000}};
	timer_create(CLOCK_MONOTONIC, &ev, &t);
	for (int i = 0; i < 3; i++) {
		timer_settime(t, 0, &once, NULL);
		sem_wait(&done);
	}
	printf("expired\n");
	return 0;
}
