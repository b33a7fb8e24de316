// One of three threads writes a byte behind a block and ends, as the others do; the first thread notices: heap-overflow, written by `put`.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIZE = 40, WRONG = 1 };
static char *block;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) static void put(int n)
{
	for (int i = 0; i < n; i++)
		block[i] = (char)n;
}

static void *writer(void *arg)
{
	for (int i = 0; i < SIZE; i++) {
		pthread_mutex_lock(&lock);
		put((int)(long)arg == WRONG && i == SIZE / 2 ? SIZE + 1 : i);
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

int main(void)
{
	block = malloc(SIZE);
	for (long i = 0; i < 3; i++) {
		pthread_t t;
		pthread_create(&t, NULL, writer, (void *)i);
		pthread_join(t, NULL);
	}
	free(block);
	puts("done");
	return 0;
}
