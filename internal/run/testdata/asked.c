// Threads over a mutex, a condition, a semaphore, the heap and a pipe, until a byte comes on standard input. Says whether their sums agree, and whether anything was interrupted: the same in each run.
// Its arguments: how many threads; "child": with a forked child, whose pid it prints, "polling child": one that comes out of its wait again and again, "inverted": with two locks that were taken in both orders, "past": with a thread that was made past ripstop, by the function that dlvsym gives.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 16, WORK = 5 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static sem_t tokens;
static int threads, whose, over, interrupted;
static uint64_t sum, of[MOST], bytes[MOST];
static int pipes[2];

enum { SEM = 1, PIPE = 2, SLEEP = 4, INPUT = 8 };
static void interrupt(int call) { __atomic_fetch_or(&interrupted, call, __ATOMIC_RELAXED); }

static void *work(void *arg)
{
	int me = (int)(intptr_t)arg, end = 0;
	char *kept = NULL;
	for (unsigned r = 0; !end; r++) {
		pthread_mutex_lock(&lock);
		while (whose != me)
			pthread_cond_wait(&turn, &lock);
		sum++;
		of[me]++;
		whose = (whose + 1) % threads;
		end = over; // the first to see it is followed by all others
		pthread_cond_broadcast(&turn);
		pthread_mutex_unlock(&lock);
		for (unsigned i = 0; i < WORK; i++) {
			char *p = malloc(16 + (r * 7 + i) % 500);
			memset(p, (int)r, 16);
			free(kept);
			kept = p;
			if (sem_wait(&tokens) != 0)
				interrupt(SEM);
			bytes[me] += p[3] == (char)r;
			sem_post(&tokens);
		}
		char byte = (char)r;
		if (write(pipes[1], &byte, 1) != 1 || read(pipes[0], &byte, 1) != 1)
			interrupt(PIPE);
		struct timespec ts = {0, 500000};
		if (nanosleep(&ts, NULL) != 0)
			interrupt(SLEEP);
	}
	free(kept);
	return NULL;
}

static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;

static void *both(void *arg)
{
	pthread_mutex_t *a = arg ? &first : &second, *b = arg ? &second : &first;
	char byte = 0;
	if (arg && read(pipes[0], &byte, 1) != 1) // never in each other's way
		abort();
	pthread_mutex_lock(a);
	pthread_mutex_lock(b);
	pthread_mutex_unlock(b);
	pthread_mutex_unlock(a);
	if (!arg && write(pipes[1], &byte, 1) != 1)
		abort();
	return NULL;
}

static void *waits(void *arg)
{
	for (;;)
		pause();
	return arg;
}

int main(int argc, char **argv)
{
	threads = argc > 1 ? atoi(argv[1]) : 1;
	pthread_t id[MOST];
	sem_init(&tokens, 0, 2);
	if (pipe(pipes) < 0)
		return 1;
	const char *also = argc > 2 ? argv[2] : "";
	if (strcmp(also, "inverted") == 0) {
		pthread_create(&id[0], NULL, both, NULL);
		pthread_create(&id[1], NULL, both, &id);
		pthread_join(id[0], NULL);
		pthread_join(id[1], NULL);
	}
	if (strcmp(also, "past") == 0) {
		int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
		*(void **)&create = dlvsym(RTLD_DEFAULT, "pthread_create", "GLIBC_2.2.5");
		if (create(&id[0], NULL, waits, NULL) != 0)
			return 1;
	}
	for (int i = 0; i < threads; i++)
		pthread_create(&id[i], NULL, work, (void *)(intptr_t)i);
	puts("begun");
	fflush(stdout);
	char byte;
	int forks = strcmp(also, "child") == 0 || strcmp(also, "polling child") == 0;
	pid_t child = forks ? fork() : 0;
	if (child == 0 && forks) {
		struct pollfd p = {.events = POLLIN};
		while (strcmp(also, "polling child") == 0 && poll(&p, 1, 20) == 0)
			free(malloc(100));
		while (read(0, &byte, 1) > 0)
			;
		_exit(0);
	}
	if (child) {
		printf("%d\n", child);
		fflush(stdout);
	}
	if (read(0, &byte, 1) < 0)
		interrupt(INPUT);
	if (child)
		waitpid(child, NULL, 0);
	pthread_mutex_lock(&lock);
	over = 1;
	pthread_mutex_unlock(&lock);
	uint64_t all = 0, right = 0;
	for (int i = 0; i < threads; i++) {
		pthread_join(id[i], NULL);
		all += of[i];
		right += bytes[i];
	}
	printf("%s %s %d\n", all == sum ? "agreed" : "lost counts", right == WORK * all ? "right" : "wrong bytes", interrupted);
	return 3;
}
