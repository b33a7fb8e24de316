// Writes a byte behind a block, which is told when it is freed (heap-overflow, written by `put`); then says who and where it is, and writes to that place for two seconds.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { SIZE = 40 };
static volatile long word;

__attribute__((noinline)) static void put(char *block, int n)
{
	for (int i = 0; i < n; i++)
		block[i] = (char)n;
}

static void *nothing(void *arg) { return arg; }

int main(void)
{
	pthread_t t;
	char *block = malloc(SIZE);
	pthread_create(&t, NULL, nothing, NULL);
	pthread_join(t, NULL);
	usleep(300000);
	put(block, SIZE + 1);
	free(block);
	printf("%d %p\n", getpid(), (void *)&word);
	fflush(stdout);
	for (int i = 0; i < 2000; i++) {
		word++;
		usleep(1000);
	}
	puts("done");
	return 0;
}
