// Threads that register an rseq area of their own, as tcmalloc and librseq do where glibc has none (glibc.pthread.rseq=0), on stacks that are unmapped when they have been joined: rseq ROUNDS.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { STACK = 256 << 10, RSEQ = 334, SIGNATURE = 0x53053053 };
static __thread struct { unsigned word[8]; } area __attribute__((aligned(32)));
static pthread_barrier_t goes;

static void *waits(void *arg)
{
	long r = syscall(RSEQ, &area, sizeof area, 0, SIGNATURE);
	pthread_barrier_wait(&goes);
	(void)arg;
	return (void *)r;
}

static void epochs_pass(void)
{
	for (int i = 0; i < 12; i++)
		nanosleep(&(struct timespec){0, 5000000}, NULL);
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 1;
	pthread_barrier_init(&goes, NULL, 2);
	for (int r = 0; r < rounds; r++) {
		char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		pthread_attr_t attr;
		pthread_t thread;
		void *result;
		pthread_attr_init(&attr);
		if (stack == MAP_FAILED || pthread_attr_setstack(&attr, stack, STACK) || pthread_create(&thread, &attr, waits, NULL))
			return 2;
		epochs_pass();
		pthread_barrier_wait(&goes);
		if (pthread_join(thread, &result) || result)
			return 3;
		munmap(stack, STACK);
		epochs_pass();
	}
	puts("well");
	return 0;
}
