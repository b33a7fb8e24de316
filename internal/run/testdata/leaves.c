// What functions leave below the stack pointer, which later ones find in variables that they do not set: leaves KIND. It is hashed behind each call of the kind, so what is not the same in a re-execution is another hash.
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 60, TIMES = 20, WORDS = 96 };
static __thread uint64_t hash;
static uint64_t sum[2];

static __attribute__((noinline)) void look(void)
{
	uint64_t left[WORDS], *p = left;
	__asm__ volatile("" : "+r"(p) : : "memory"); // not set, and read all the same
	for (int i = 0; i < WORDS; i++)
		hash = (hash ^ p[i]) * 0x9e3779b97f4a7c15ull + 1;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rw = PTHREAD_RWLOCK_INITIALIZER;
static sem_t sem;
static pthread_barrier_t barrier;
static uint64_t shared;
static void handler(int sig) { (void)sig; }

static void sigactions(void)
{
	struct sigaction sa = {.sa_handler = handler};
	sigaction(SIGUSR1, &sa, NULL);
	look();
}

static void mutexes(void)
{
	pthread_mutex_lock(&mutex);
	look();
	shared++;
	pthread_mutex_unlock(&mutex);
	look();
}

static void rwlocks(void)
{
	pthread_rwlock_wrlock(&rw);
	look();
	shared++;
	pthread_rwlock_unlock(&rw);
	look();
}

static void semaphores(void)
{
	sem_wait(&sem);
	look();
	shared++;
	sem_post(&sem);
	look();
}

static void barriers(void)
{
	pthread_barrier_wait(&barrier);
	look();
}

static void clocks(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	look();
}

static void *brief(void *arg) { return arg; }
static void births(void)
{
	pthread_t t;
	pthread_create(&t, NULL, brief, NULL);
	look();
	pthread_join(t, NULL);
	look();
}

static const struct kind { const char *name; void (*f)(void); } kinds[] = {{"sigactions", sigactions}, {"mutexes", mutexes}, {"rwlocks", rwlocks}, {"semaphores", semaphores}, {"barriers", barriers}, {"clocks", clocks}, {"births", births}};
static void (*f)(void);

static void *work(void *arg)
{
	struct timespec soon = {0, 1000000};
	for (int r = 0; r < ROUNDS; r++) {
		for (int i = 0; i < TIMES; i++)
			f();
		nanosleep(&soon, NULL);
	}
	*(uint64_t *)arg = hash;
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t t;
	for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (argc == 2 && !strcmp(argv[1], kinds[i].name))
			f = kinds[i].f;
	if (!f)
		return 2;
	sem_init(&sem, 0, 1);
	pthread_barrier_init(&barrier, NULL, 2);
	pthread_create(&t, NULL, work, &sum[1]);
	work(&sum[0]);
	pthread_join(t, NULL);
	puts(argv[1]);
	return 0;
}
