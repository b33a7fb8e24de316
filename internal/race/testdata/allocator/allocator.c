// An allocator of a program's own, in a library: 64 classes of blocks of 64 bytes and their multiples, with the list of free ones in themselves.
#include <pthread.h>
#include <stddef.h>
#include <string.h>

enum { UNIT = 64, CLASSES = 256 };
struct block { struct block *next; };

static char memory[16 << 20] __attribute__((aligned(UNIT)));
static size_t used;
static struct block *freed[CLASSES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t class_of(size_t n) { return (n + UNIT + UNIT - 1) / UNIT; }

static void *malloc_here(size_t n)
{
	size_t c = class_of(n);
	if (n >= (CLASSES - 2) * UNIT)
		return NULL;
	pthread_mutex_lock(&lock);
	struct block *b = freed[c];
	if (b)
		freed[c] = b->next;
	else if (used + c * UNIT <= sizeof memory) {
		*(size_t *)(memory + used) = c;
		b = (struct block *)(memory + used + UNIT);
		used += c * UNIT;
	}
	pthread_mutex_unlock(&lock);
	return b;
}

static void free_here(void *p)
{
	struct block *b = p;
	if (!p)
		return;
	size_t c = *(size_t *)((char *)p - UNIT);
	memset(p, 0x55, (c - 1) * UNIT);
	pthread_mutex_lock(&lock);
	b->next = freed[c];
	freed[c] = b;
	pthread_mutex_unlock(&lock);
}

void *malloc(size_t n) { return malloc_here(n); }
void free(void *p) { free_here(p); }

void *calloc(size_t m, size_t n)
{
	void *p = malloc(m * n);
	return p ? memset(p, 0, m * n) : NULL;
}

void *realloc(void *old, size_t n)
{
	void *p = malloc(n);
	if (old && p) {
		size_t had = (*(size_t *)((char *)old - UNIT) - 1) * UNIT;
		memcpy(p, old, had < n ? had : n);
		free(old);
	}
	return p;
}

// What only some know of: blocks past malloc and free.
void *other_alloc(size_t n) { return malloc_here(n); }
void other_free(void *p) { free_here(p); }
