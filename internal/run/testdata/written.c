// One of three threads writes a byte behind a block, another thread notices: heap-overflow, written by `put`.
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SIZE = 40, WRONG = 2 };
static char *block;
static sem_t written;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

__attribute__((noinline)) static void put(int n)
{
	for (int i = 0; i < n; i++)
		block[i] = (char)n;
}

static void *writer(void *arg)
{
	// Until all are there: the epoch that makes threads is not executed again.
	usleep(300000);
	for (int i = 0; i < SIZE; i++) {
		pthread_mutex_lock(&lock);
		put((int)(long)arg == WRONG && i == SIZE / 2 ? SIZE + 1 : i);
		pthread_mutex_unlock(&lock);
	}
	sem_post(&written);
	pause();
	return NULL;
}

int main(void)
{
	pthread_t t;
	sem_init(&written, 0, 0);
	block = malloc(SIZE);
	for (long i = 0; i < 3; i++)
		pthread_create(&t, NULL, writer, (void *)i);
	for (int i = 0; i < 3; i++)
		sem_wait(&written);
	free(block);
	puts("done");
	fflush(stdout);
	_exit(0);
}
