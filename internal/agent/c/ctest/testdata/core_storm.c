// Threads lock and unlock (in mode `jump`: post semaphores) while timers interrupt them; the handlers post semaphores, and leave by siglongjmp in
// mode `jump`. Prints how many pairs, and how many posts in handlers, were made.
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>
#include <time.h>

enum { THREADS = 3 };
static int pairs, jumps;
static sem_t sem[THREADS];
static __thread sem_t *mine;
static __thread sem_t own;
static __thread sigjmp_buf env;
static __thread volatile long posts, jumped, depth;
static long total_posts, total_jumps;
static pthread_mutex_t total = PTHREAD_MUTEX_INITIALIZER;

static void handler(int sig)
{
	(void)sig;
	if (!mine)
		return;
	sem_post(mine);
	posts++;
	if (jumps && depth) {
		depth = 0;
		jumped++;
		siglongjmp(env, 1);
	}
}
__attribute__((noinline)) static void work(pthread_mutex_t *m, volatile int *i, int below)
{
	char room[256];
	memset(room, below, sizeof room);
	__asm__ volatile("" : : "r"(room) : "memory");
	if (below) {
		work(m, i, below - 1);
		return;
	}
	// A jump out of pthread_mutex_lock may leave glibc's mutex half taken; out of sem_post it is harmless.
	for (; jumps && *i < pairs; (*i)++)
		sem_post(&own);
	for (; *i < pairs;) {
		pthread_mutex_lock(m);
		(*i)++;
		pthread_mutex_unlock(m);
	}
}
static void *run(void *p)
{
	pthread_mutex_t m;
	volatile int i = 0;
	pthread_mutex_init(&m, NULL);
	sem_init(&own, 0, 0);
	mine = p;
	struct sigevent ev = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM};
	ev._sigev_un._tid = gettid();
	timer_t t;
	timer_create(CLOCK_MONOTONIC, &ev, &t);
	struct itimerspec every = {{0, 200000}, {0, 200000}};
	timer_settime(t, 0, &every, NULL);
	volatile int turn = 0;
	sigset_t alarm;
	sigemptyset(&alarm);
	sigaddset(&alarm, SIGALRM);
	while (i < pairs) {
		if (sigsetjmp(env, 1) == 0) {
			depth = 1;
			work(&m, &i, turn++ % 8);
		}
		depth = 0;
	}
	timer_delete(t);
	pthread_sigmask(SIG_BLOCK, &alarm, NULL);
	mine = NULL;
	pthread_mutex_lock(&total);
	total_posts += posts;
	total_jumps += jumped;
	pthread_mutex_unlock(&total);
	return NULL;
}
int main(int argc, char **argv)
{
	pairs = atoi(argv[1]);
	jumps = argc > 2;
	struct sigaction sa = {.sa_handler = handler, .sa_flags = SA_RESTART};
	sigaction(SIGALRM, &sa, NULL);
	pthread_t t[THREADS];
	for (int i = 0; i < THREADS; i++) {
		sem_init(&sem[i], 0, 0);
		pthread_create(&t[i], NULL, run, &sem[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	printf("pairs %d posts %ld jumps %ld\n", pairs * THREADS, total_posts, total_jumps);
	return 0;
}
