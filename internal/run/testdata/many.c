// Nearly as many mappings as a process may have (all but what its argument says), and in this narrow place what needs some: threads over a lock and the heap, mappings that come, go, are split and joined, for some 300 ms. Prints sums that are the same in each run.
// Whatever the kernel refuses it is told of, as it is natively not refused.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, THREADS = 3, ROUNDS = 30, PIECES = 40 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t sum;

static void check(int ok, const char *what)
{
	if (!ok) {
		puts(what);
		exit(3);
	}
}

static void *work(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg;
	for (unsigned r = 0; r < ROUNDS; r++) {
		struct timespec ts = {0, 10000000};
		// Split into PIECES, and joined again.
		char *p = mmap(NULL, PIECES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		check(p != MAP_FAILED, "mmap");
		for (unsigned i = 0; i < PIECES; i += 2)
			check(mprotect(p + i * PAGE, PAGE, PROT_READ) == 0, "mprotect");
		for (unsigned i = 1; i < PIECES; i += 2)
			p[i * PAGE] = (char)(me + r + i);
		char *b = malloc(100 + 50 * me + r);
		memset(b, (int)r, 100);
		pthread_mutex_lock(&lock);
		sum += (uint64_t)p[(2 * (r % 10) + 1) * PAGE] + (uint64_t)b[r];
		pthread_mutex_unlock(&lock);
		nanosleep(&ts, NULL);
		for (unsigned i = 0; i < PIECES; i += 2)
			check(mprotect(p + i * PAGE, PAGE, PROT_READ | PROT_WRITE) == 0, "mprotect back");
		free(b);
		check(munmap(p, PIECES * PAGE) == 0, "munmap");
	}
	return NULL;
}

int main(int argc, char **argv)
{
	long free_ones = argc > 1 ? atol(argv[1]) : 400, n = 0;
	size_t size = 140000ul * PAGE;
	char *all = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	check(all != MAP_FAILED, "reserve");
	pthread_t t[THREADS];
	free(malloc(1 << 16));
	// Two a page, until there are no more; then as many are given back as are to be free.
	while (mprotect(all + 2 * n * PAGE, PAGE, PROT_READ | PROT_WRITE) == 0)
		n++;
	for (long i = 0; i < free_ones / 2; i++)
		check(mprotect(all + 2 * --n * PAGE, PAGE, PROT_NONE) == 0, "give back");
	for (long i = 0; i < n; i += 100)
		all[2 * i * PAGE] = (char)i;
	for (uintptr_t i = 0; i < THREADS; i++)
		check(pthread_create(&t[i], NULL, work, (void *)i) == 0, "pthread_create");
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	for (long i = 0; i < n; i += 100)
		check(all[2 * i * PAGE] == (char)i, "content");
	printf("%lu\n", (unsigned long)sum);
	return 0;
}
