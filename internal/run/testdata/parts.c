/* Writes 16 MiB, says so, and then takes two mutexes in turn, which is an event each time, until its input ends. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { BYTES = 16 << 20 };
static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;

static void *counts(void *arg)
{
	for (int i = 0; i < 1000; i++) {
		pthread_mutex_lock(&a);
		++*(long *)arg;
		pthread_mutex_unlock(&a);
		pthread_mutex_lock(&b);
		pthread_mutex_unlock(&b);
	}
	return NULL;
}

int main(void)
{
	long n = 0;
	pthread_t other;
	char *p = malloc(BYTES);
	for (int i = 0; i < BYTES; i += 64)
		((volatile char *)p)[i] = 1;
	pthread_create(&other, NULL, counts, &n);
	pthread_join(other, NULL);
	puts("ready");
	fflush(stdout);
	for (struct pollfd in = {.events = POLLIN}; poll(&in, 1, 10) == 0;)
		counts(&n);
	return p[BYTES - 64] == 1 ? 0 : 1;
}
