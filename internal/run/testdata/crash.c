/* A thread writes through a null pointer. */
#include <pthread.h>

__attribute__((noinline)) static void inner(volatile int *p) { *p = 1; }

static void *worker(void *arg)
{
	inner(arg);
	return arg;
}

int main(void)
{
	pthread_t t;
	pthread_create(&t, NULL, worker, NULL);
	return pthread_join(t, NULL);
}
