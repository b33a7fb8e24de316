// A thread that writes to 256 MiB, a piece every millisecond, from when its standard input is at its end. Says that it is ready, and then a sum.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PIECE = 1 << 20, PIECES = 256, PAGE = 4096 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned long sum;

static void *work(void *arg)
{
	char *all = arg;
	for (int i = 0; i < PIECES; i++) {
		struct timespec ts = {0, 1000000};
		for (int k = 0; k < PIECE; k += PAGE)
			all[(long)i * PIECE + k] = (char)(i + 1);
		char *p = malloc(100);
		p[0] = (char)i;
		pthread_mutex_lock(&lock);
		sum += (unsigned long)all[(long)i / 2 * PIECE] + (unsigned char)p[0];
		pthread_mutex_unlock(&lock);
		free(p);
		nanosleep(&ts, NULL);
	}
	return NULL;
}

int main(void)
{
	char byte;
	char *all = mmap(NULL, (size_t)PIECE * PIECES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t t;
	puts("ready");
	fflush(stdout);
	while (read(0, &byte, 1) > 0)
		;
	pthread_create(&t, NULL, work, all);
	pthread_join(t, NULL);
	printf("%lu\n", sum);
	return 7;
}
