// A thread ends while another one that ends is held up in a destructor that comes behind all others, longer than guard has threads wait for each other; a third is then made on the stack that it leaves. With an argument: several end, each held up for less, and the last waits for all of them. Prints the same in each run.
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { KEYS = 40 /* more than a block of 32, in which the agent has the last one */, LONG = 1500, LONGER = 1200, LAST = 1200, EACH = 400, SEVERAL = 5 };
static pthread_key_t last_key;
static __thread int rounds, late, several;
static char stack[1 << 18] __attribute__((aligned(4096)));
static volatile unsigned long spent;

static void sleep_ms(long ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};
	nanosleep(&t, NULL);
}

static void ends(void *value)
{
	if (++rounds < PTHREAD_DESTRUCTOR_ITERATIONS) {
		pthread_setspecific(last_key, value);
		return;
	}
	sleep_ms(several ? EACH : late ? LONGER : LONG);
	/* A re-execution sleeps for nothing. */
	for (unsigned long i = 0; late && i < 1000000000; i++)
		spent++;
}

static void *work(void *arg)
{
	late = arg != NULL;
	if (late)
		sleep_ms(100);
	pthread_setspecific(last_key, &rounds);
	return NULL;
}

static void *end_with_others(void *arg)
{
	several = 1;
	pthread_setspecific(last_key, &rounds);
	return arg;
}

static void *none(void *arg) { return arg; }

int main(int argc, char **argv)
{
	pthread_t t;
	pthread_attr_t a;
	for (int i = 0; i < KEYS; i++)
		if (pthread_key_create(&last_key, i == KEYS - 1 ? ends : NULL))
			return 2;
	if (argc > 1) {
		pthread_t all[SEVERAL];
		for (int i = 0; i < SEVERAL; i++)
			if (pthread_create(&all[i], NULL, end_with_others, argv))
				return 2;
		for (int i = 0; i < SEVERAL; i++)
			if (pthread_join(all[i], NULL))
				return 2;
		printf("well\n");
		return 0;
	}
	/* Its stack is nobody's afterwards. */
	pthread_attr_init(&a);
	if (pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED) || pthread_attr_setstack(&a, stack, sizeof stack) || pthread_create(&t, &a, work, NULL))
		return 2;
	pthread_attr_init(&a);
	if (pthread_attr_setdetachstate(&a, PTHREAD_CREATE_DETACHED) || pthread_create(&t, &a, work, &last_key))
		return 2;
	sleep_ms(100 + LONGER + 1000 + LAST);
	void *result;
	if (pthread_create(&t, NULL, none, stack) || pthread_join(t, &result) || result != stack)
		return 2;
	printf("well\n");
	return 0;
}
