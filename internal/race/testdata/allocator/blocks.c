// Blocks of an allocator that the program brings along (allocator.c) go from thread to thread, grow, are cleared and freed. One is used after that.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *work(void *arg)
{
	char *p = malloc(16);
	memset(p, 1, 16);
	for (size_t n = 32; n < 4096; n *= 2) {
		p = realloc(p, n);
		memset(p + n / 2, 1, n / 2);
	}
	char *q = calloc(1, 500);
	q[3] = p[2000];
	free(p);
	free(q);
	return arg;
}

int main(void)
{
	pthread_t thread[2];
	for (int i = 0; i < 2; i++)
		pthread_create(&thread[i], NULL, work, NULL);
	work(NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(thread[i], NULL);
	volatile char *late = malloc(300);
	late[200] = 1;
	free((void *)late); // uaf late
	printf("%d\n", late[200]); // uaf late
	return 0;
}
