// own.c: -DLIBRARY: an allocator of the program's own, as jemalloc is one: a library that the program is linked with, one list of free blocks for each size, under a mutex that is tried first. Else the program: its threads, the first one among
// them, make and free blocks, in each of which is where others are; so who took that mutex in which order is all over its memory.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#ifdef LIBRARY
enum { CLASSES = 44, HEAD = 16, CHUNK = 1 << 22 };
struct block { size_t class; struct block *next; };
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct block *lists[CLASSES];
static char *chunk;
static size_t left;

static void *fresh(size_t n)
{
	if (n > left) {
		left = n > CHUNK ? n : CHUNK;
		chunk = mmap(NULL, left, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		if (chunk == MAP_FAILED)
			abort();
	}
	void *p = chunk;
	chunk += n, left -= n;
	return p;
}

void *malloc(size_t n)
{
	unsigned class = 5;
	while ((1ul << class) - HEAD < n)
		class++;
	if (pthread_mutex_trylock(&mutex))
		pthread_mutex_lock(&mutex);
	struct block *b = lists[class];
	if (b)
		lists[class] = b->next;
	else
		b = fresh(1ul << class);
	pthread_mutex_unlock(&mutex);
	b->class = class;
	return (char *)b + HEAD;
}

void free(void *p)
{
	if (!p)
		return;
	struct block *b = (struct block *)((char *)p - HEAD);
	if (pthread_mutex_trylock(&mutex))
		pthread_mutex_lock(&mutex);
	b->next = lists[b->class];
	lists[b->class] = b;
	pthread_mutex_unlock(&mutex);
}

size_t malloc_usable_size(void *p) { return p ? (1ul << ((struct block *)((char *)p - HEAD))->class) - HEAD : 0; }

void *calloc(size_t m, size_t n)
{
	void *volatile p = malloc(m * n); /* which compilers would make a calloc of */
	return memset(p, 0, m * n);
}

void *realloc(void *p, size_t n)
{
	void *q = malloc(n);
	if (p) {
		size_t was = malloc_usable_size(p);
		memcpy(q, p, was < n ? was : n);
		free(p);
	}
	return q;
}

/* Not more than a class of its size has anyway: blocks are of powers of two, and a chunk begins with a page. */
void *aligned_alloc(size_t align, size_t n) { return malloc(n); }
void *memalign(size_t align, size_t n) { return malloc(n); }
int posix_memalign(void **to, size_t align, size_t n)
{
	*to = malloc(n);
	return 0;
}
#else
enum { THREADS = 3, ROUNDS = 60, TIMES = 300, KEPT = 64 };
struct item { struct item *others[3]; uint64_t number; };
static struct item *kept[THREADS][KEPT];
static uint64_t sums[THREADS];

static void *work(void *arg)
{
	size_t me = (size_t)arg;
	struct timespec soon = {0, 500000};
	for (unsigned r = 0; r < ROUNDS; r++) {
		for (unsigned i = 0; i < TIMES; i++) {
			struct item **at = &kept[me][(i * 7 + r) % KEPT];
			if (*at) {
				sums[me] = sums[me] * 31 + (*at)->number;
				free(*at);
			}
			*at = malloc(sizeof **at + i % 5 * 40);
			**at = (struct item){{kept[me][i % KEPT], *at, at == kept[me] ? NULL : at[-1]}, r * TIMES + i};
		}
		nanosleep(&soon, NULL);
	}
	return NULL;
}

int main(void)
{
	pthread_t t[THREADS];
	for (size_t i = 1; i < THREADS; i++)
		pthread_create(&t[i], NULL, work, (void *)i);
	work(0);
	for (size_t i = 1; i < THREADS; i++)
		pthread_join(t[i], NULL);
	for (size_t i = 0; i < THREADS; i++)
		printf("%016lx\n", sums[i]);
}
#endif
