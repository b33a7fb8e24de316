// Takes a lock a hundred times on one path; the last time it keeps it until it reads a line. Between taking it and waiting, other calls use the stack.
#include <pthread.h>
#include <stdio.h>

#define NOINLINE __attribute__((noinline, noclone))

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int sink;

NOINLINE static void enter(void)
{
	pthread_mutex_lock(&lock);
	sink++;
}

NOINLINE static void churn(int depth)
{
	volatile char wide[40];
	wide[0] = 1;
	if (depth > 0)
		churn(depth - 1);
	sink += wide[0];
}

NOINLINE static void section(int last)
{
	enter();
	churn(10);
	if (last) {
		puts("holding");
		fflush(stdout);
		getchar();
	}
	pthread_mutex_unlock(&lock);
}

NOINLINE static void wide_path(int last)
{
	volatile char wide[400];
	wide[last] = 1;
	section(last);
	sink += wide[last];
}

static void *run(void *arg)
{
	for (int i = 0; i < 100; i++)
		wide_path(i == 99);
	return arg;
}

int main(void)
{
	pthread_t t;
	pthread_create(&t, NULL, run, NULL);
	pthread_join(t, NULL);
	return 0;
}
