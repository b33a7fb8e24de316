// A thread whose stack a re-execution takes away, as only time says when that is done: before it is born, where it is to be born on another one (strays other), or while it lives (strays under). A re-execution sleeps for nothing. Prints the same in each run.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { BYTES = 1 << 18, TICK = 30000000 /* some 10 to 30 ms of the processor's time */ };
static char *stack[2];
static volatile int which;

static void sleep_ms(long ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};
	nanosleep(&t, NULL);
}

static void spend(unsigned ticks)
{
	for (volatile unsigned long i = 0; i < (unsigned long)ticks * TICK; i++)
		;
}

static void *lives(void *arg)
{
	if (arg)
		spend(6);
	return arg;
}

static void *chooses(void *arg)
{
	spend(8);
	which = 1;
	return arg;
}

/* When nobody has it any more, natively. */
static void *takes(void *arg)
{
	sleep_ms(4000);
	if (arg)
		spend(2);
	munmap(stack[1], BYTES);
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t t, taker, chooser;
	pthread_attr_t a;
	void *under = argc > 1 && strcmp(argv[1], "under") == 0 ? &a : NULL;
	for (int i = 0; i < 2; i++)
		if ((stack[i] = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) == MAP_FAILED)
			return 2;
	if (pthread_create(&taker, NULL, takes, under) || pthread_create(&chooser, NULL, chooses, NULL))
		return 2;
	if (under) {
		which = 1;
	} else {
		sleep_ms(2000);
		spend(3);
	}
	pthread_attr_init(&a);
	if (pthread_attr_setstack(&a, stack[which], BYTES) || pthread_create(&t, &a, lives, under))
		return 2;
	pthread_join(t, NULL);
	pthread_join(chooser, NULL);
	pthread_join(taker, NULL);
	printf("well\n");
	return 0;
}
