// Threads under a lock that write a byte behind a block now and then, in room that libc leaves there, which is noticed when it is freed: an epoch is executed again each time. What it prints does not depend on them. Ends with 7.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 3, ROUNDS = 12, WORK = 200, SIZE = 41 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long sum;

__attribute__((noinline)) static void put(char *p, int n)
{
	for (int i = 0; i < n; i++)
		p[i] = (char)i;
}

static void *work(void *arg)
{
	for (int r = 0; r < ROUNDS; r++) {
		char *p = malloc(SIZE);
		for (int i = 0; i < WORK; i++) {
			pthread_mutex_lock(&lock);
			put(p, i == WORK / 2 ? SIZE + 1 : SIZE);
			sum += (unsigned long)p[i % SIZE];
			pthread_mutex_unlock(&lock);
		}
		free(p);
	}
	return arg;
}

int main(void)
{
	pthread_t t[THREADS];
	for (int i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, work, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	printf("%lu\n", sum);
	return 7;
}
