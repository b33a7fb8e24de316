// Threads over a mutex, a condition, a semaphore, the heap and a pipe, for some 400 ms, with what no epoch can follow (a thread that is made and joined, a child) in the middle.
// Prints sums that are the same in each run. Its argument: how many threads.
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 16, ROUNDS = 40, WORK = 300 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn = PTHREAD_COND_INITIALIZER;
static sem_t tokens;
static int threads, whose;
static uint64_t sum, of[MOST];
static int pipes[2];

static void pause_ms(int ms)
{
	struct timespec ts = {0, ms * 1000000l};
	nanosleep(&ts, NULL);
}

// One after another: the order is the program's.
static void *work(void *arg)
{
	int me = (int)(intptr_t)arg;
	char *kept = NULL;
	for (int r = 0; r < ROUNDS; r++) {
		pthread_mutex_lock(&lock);
		while (whose != me)
			pthread_cond_wait(&turn, &lock);
		sum = sum * 31 + (uint64_t)me;
		whose = (whose + 1) % threads;
		pthread_cond_broadcast(&turn);
		pthread_mutex_unlock(&lock);
		for (int i = 0; i < WORK; i++) {
			char *p = malloc((size_t)(16 + (r * 7 + i) % 500));
			memset(p, r, 16);
			free(kept);
			kept = p;
			sem_wait(&tokens);
			of[me] += (uint64_t)p[3] + (uint64_t)i;
			sem_post(&tokens);
		}
		char byte = (char)r;
		if (write(pipes[1], &byte, 1) != 1 || read(pipes[0], &byte, 1) != 1)
			abort();
		if (me == 0)
			pause_ms(8);
	}
	free(kept);
	return NULL;
}

static void *brief(void *arg) { return arg; }

int main(int argc, char **argv)
{
	threads = argc > 1 ? atoi(argv[1]) : 1;
	pthread_t id[MOST], one;
	sem_init(&tokens, 0, 2);
	if (pipe(pipes) < 0)
		return 1;
	for (int i = 1; i < threads; i++)
		pthread_create(&id[i], NULL, work, (void *)(intptr_t)i);
	work(NULL);
	for (int i = 1; i < threads; i++)
		pthread_join(id[i], NULL);
	pthread_create(&one, NULL, brief, &sum);
	void *result;
	pthread_join(one, &result);
	pid_t child = fork();
	if (child == 0)
		_exit(7);
	int status = 0;
	waitpid(child, &status, 0);
	uint64_t all = 0;
	for (int i = 0; i < threads; i++)
		all += of[i];
	printf("%lu %lu %d %d\n", sum, all, result == &sum, WEXITSTATUS(status));
	return 3;
}
