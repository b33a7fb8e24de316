// Writes a byte behind a block, which is told when it is freed (heap-overflow, written by `put`); then says who it is and where a variable of it lies, waits for a byte, and changes the variable.
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
	// The epoch that makes threads is not executed again.
	usleep(300000);
	put(block, SIZE + 1);
	free(block);
	printf("%d %p\n", getpid(), (void *)&word);
	fflush(stdout);
	if (getchar() == EOF)
		return 1;
	word++;
	word++;
	puts("done");
	return 0;
}
