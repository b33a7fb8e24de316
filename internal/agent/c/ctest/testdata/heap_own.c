/* A program with an allocator of its own, made like Chromium's: the first call of malloc sets it up under a spin lock, and for that it maps
 * memory and uses functions that are interposed. Who calls malloc meanwhile on the same thread spins for ever, and the loader is an early caller. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int spin;
static char *area;
static size_t used, calls;
enum { AREA = 64 << 20 };
static pthread_key_t key;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void nothing(void) {}

void *malloc(size_t n)
{
	while (__atomic_exchange_n(&spin, 1, __ATOMIC_ACQUIRE))
		;
	if (!area) {
		char *p = mmap(NULL, 2 * AREA, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		munmap(p + AREA, AREA);
		madvise(p, AREA, MADV_NORMAL);
		pthread_once(&once, nothing);
		pthread_mutex_lock(&mutex);
		pthread_key_create(&key, NULL);
		pthread_mutex_unlock(&mutex);
		area = p;
	}
	calls++;
	n = (n + 31) & ~(size_t)15;
	char *p = area + used + 16;
	used += n;
	*(size_t *)(p - 16) = n - 16;
	__atomic_store_n(&spin, 0, __ATOMIC_RELEASE);
	return p;
}

void free(void *p) { (void)p; }
void *calloc(size_t m, size_t n) { return malloc(m * n); }

void *realloc(void *old, size_t n)
{
	char *p = malloc(n);
	if (old)
		memcpy(p, old, n < ((size_t *)old)[-2] ? n : ((size_t *)old)[-2]);
	return p;
}

static void *work(void *arg)
{
	free(malloc(100));
	return arg;
}

int main(void)
{
	pthread_t t;
	pthread_create(&t, NULL, work, NULL);
	pthread_join(t, NULL);
	printf("%s\n", calls ? "its own" : "glibc's");
	return 0;
}
