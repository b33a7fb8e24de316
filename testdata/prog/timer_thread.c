// main waits for what a timer's function does, in a thread that glibc makes for itself and that no event speaks of before.
// ripstop: verdict none
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t rang = PTHREAD_COND_INITIALIZER;
static sem_t bell;
static int ticks;

static void tick(union sigval v)
{
	(void)v;
	pthread_mutex_lock(&lock);
	ticks++;
	pthread_cond_signal(&rang);
	pthread_mutex_unlock(&lock);
	sem_post(&bell);
}

int main(void)
{
	struct sigevent e = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = tick};
	struct itimerspec when = {{0, 200 * 1000 * 1000}, {0, 200 * 1000 * 1000}};
	timer_t t;
	sem_init(&bell, 0, 0);
	timer_create(CLOCK_MONOTONIC, &e, &t);
	timer_settime(t, 0, &when, NULL);
	pthread_mutex_lock(&lock);
	while (ticks < 1)
		pthread_cond_wait(&rang, &lock);
	pthread_mutex_unlock(&lock);
	sem_wait(&bell);
	sem_wait(&bell);
	puts("done");
	return 0;
}
