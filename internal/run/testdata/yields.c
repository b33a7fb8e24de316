// yields HOW: threads that wait for each other by looking and yielding, for some hundred milliseconds: how often they yield is chance, what comes of it is not. Says the same in each run.
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static atomic_int round_of[2], stopped, token;
static long sum[2], work[2][512];

static void sleeps(long ms)
{
	struct timespec ts = {ms / 1000, ms % 1000 * 1000000};
	nanosleep(&ts, NULL);
}

// Some of what threads do with their own memory, and a lock.
static void works(long me, long n)
{
	for (long i = 0; i < n; i++)
		work[me][i % 512] += i ^ n;
	pthread_mutex_lock(&mutex);
	sum[me] = sum[me] * 31 + work[me][n % 512];
	pthread_mutex_unlock(&mutex);
}

static void until(atomic_int *word, int value)
{
	while (atomic_load(word) < value)
		sched_yield();
}

// Both come to each round.
static void *meets(void *arg)
{
	long me = (long)arg;
	for (int i = 1; i <= 2000; i++) {
		works(me, 20000 + 30000 * ((me + i) % 2));
		atomic_store(&round_of[me], i);
		until(&round_of[1 - me], i);
	}
	return NULL;
}

// As std::stop_token.
static void *looks(void *arg)
{
	long me = (long)arg;
	while (!atomic_load(&stopped))
		sched_yield();
	works(me, 100);
	return NULL;
}

static void *hands(void *arg)
{
	long me = (long)arg;
	for (int i = 0; i < 12000; i++) {
		while (atomic_load(&token) != me)
			sched_yield();
		for (long k = 0; k < 4000; k++)
			work[0][k % 512] += k ^ (sum[0] + me);
		sum[0] = sum[0] * 31 + work[0][i % 512];
		atomic_store(&token, (int)(1 - me));
	}
	return NULL;
}

// As an executor's thread: looks some times, and then sleeps.
static int job, jobs;

static void *executes(void *arg)
{
	(void)arg;
	for (;;) {
		for (int i = 0; i < 100 && atomic_load(&token) == 0; i++)
			sched_yield();
		pthread_mutex_lock(&mutex);
		while (jobs == 0)
			pthread_cond_wait(&cond, &mutex);
		int n = job;
		jobs--;
		atomic_store(&token, 0);
		pthread_mutex_unlock(&mutex);
		if (n < 0)
			return NULL;
		for (long i = 0; i < 100000; i++)
			work[1][i % 512] += i ^ n;
	}
}

static void submits(int n)
{
	while (atomic_load(&token) != 0)
		sched_yield();
	pthread_mutex_lock(&mutex);
	job = n;
	jobs++;
	atomic_store(&token, 1);
	pthread_cond_signal(&cond);
	pthread_mutex_unlock(&mutex);
}

static void handler(int sig)
{
	(void)sig;
	atomic_fetch_add(&token, 1);
}

static void *is_told(void *arg)
{
	(void)arg;
	for (int i = 1; i <= 60; i++) {
		until(&token, i);
		works(1, 5000);
		atomic_store(&round_of[1], i);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t[2];
	const char *how = argc > 1 ? argv[1] : "";
	if (!strcmp(how, "meets") || !strcmp(how, "hands")) {
		for (long i = 0; i < 2; i++)
			pthread_create(&t[i], NULL, *how == 'm' ? meets : hands, (void *)i);
		for (int i = 0; i < 2; i++)
			pthread_join(t[i], NULL);
	} else if (!strcmp(how, "looks")) {
		pthread_create(&t[0], NULL, looks, (void *)1);
		for (int i = 0; i < 60; i++) {
			works(0, 100000);
			sleeps(3);
		}
		atomic_store(&stopped, 1);
		pthread_join(t[0], NULL);
	} else if (!strcmp(how, "executes")) {
		pthread_create(&t[0], NULL, executes, NULL);
		for (int i = 0; i < 100; i++) {
			submits(i);
			works(0, 100000);
			sleeps(2);
		}
		submits(-1);
		pthread_join(t[0], NULL);
	} else if (!strcmp(how, "told")) {
		signal(SIGUSR1, handler);
		pthread_create(&t[0], NULL, is_told, NULL);
		for (int i = 1; i <= 60; i++) {
			sleeps(2);
			pthread_kill(t[0], SIGUSR1);
			until(&round_of[1], i);
		}
		pthread_join(t[0], NULL);
	} else {
		return 2;
	}
	printf("%ld %ld %ld\n", sum[0], sum[1], work[1][7]);
	return 0;
}
