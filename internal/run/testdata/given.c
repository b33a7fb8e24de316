// A thread on a stack of the program's own ends in an epoch, and its memory is then something else, over and over: given ROUNDS. A re-execution of that epoch goes another way before the thread ends. Prints how often a byte was another one afterwards.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { STACK = 256 << 10 };
static pthread_barrier_t goes;

static void *waits(void *arg)
{
	pthread_barrier_wait(&goes);
	return arg;
}

static void epochs_pass(void)
{
	// In pieces: an end comes to threads where they wait.
	for (int i = 0; i < 12; i++)
		nanosleep(&(struct timespec){0, 5000000}, NULL);
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 1, wrong = 0, null = open("/dev/null", O_WRONLY);
	char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_attr_t attr;
	pthread_attr_init(&attr);
	pthread_attr_setstack(&attr, stack, STACK);
	pthread_barrier_init(&goes, NULL, 2);
	for (int r = 0; r < rounds; r++) {
		pthread_t thread;
		if (stack == MAP_FAILED || null < 0 || pthread_create(&thread, &attr, waits, NULL))
			return 2;
		epochs_pass();
		// No recording has what the processor's random numbers were.
		unsigned long random;
		__asm__ volatile("1: rdrand %0\n\tjnc 1b" : "=r"(random) : : "cc");
		if (write(null, &random, sizeof random) != sizeof random)
			return 3;
		pthread_barrier_wait(&goes);
		pthread_join(thread, NULL);
		memset(stack, 0x40 + r % 16, STACK);
		epochs_pass();
		int differs = 0;
		for (int i = 0; i < STACK; i++)
			if (stack[i] != 0x40 + r % 16)
				differs++;
		wrong += differs != 0;
	}
	printf("%d\n", wrong);
	return 0;
}
