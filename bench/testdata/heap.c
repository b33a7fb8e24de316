// Programs that do little but allocate: kernels of `bench -only heap`. Usage: heap_work KERNEL SCALE
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t next(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

static size_t length(uint64_t r)
{
	unsigned few = r & 63;
	return few < 56 ? 8 + (r >> 8) % 120 : few < 63 ? 128 + (r >> 8) % 1024 : 1024 + (r >> 8) % 16384;
}

/* Blocks of many sizes come and go in random order; 100,000 live. */
static void churn(long scale)
{
	enum { LIVE = 100000 };
	char **live = calloc(LIVE, sizeof *live);
	uint64_t s = 88172645463325252;
	for (long i = 0; i < scale * 1000000; i++) {
		uint64_t r = next(&s);
		char **at = &live[r % LIVE];
		free(*at);
		size_t n = length(next(&s));
		*at = malloc(n);
		(*at)[0] = (*at)[n - 1] = 1;
	}
	for (int i = 0; i < LIVE; i++)
		free(live[i]);
	free(live);
}

struct node { struct node *left, *right; };

static struct node *tree(int depth)
{
	struct node *n = malloc(sizeof *n);
	n->left = depth ? tree(depth - 1) : NULL;
	n->right = depth ? tree(depth - 1) : NULL;
	return n;
}

static void fell(struct node *n)
{
	if (n->left) {
		fell(n->left);
		fell(n->right);
	}
	free(n);
}

/* Trees of small nodes, made and freed as a whole. */
static void trees(long scale)
{
	struct node *old = tree(18);
	for (long i = 0; i < scale * 10; i++)
		fell(tree(i % 4 ? 14 : 17));
	fell(old);
}

/* Buffers that grow by realloc, a few at a time. */
static void growth(long scale)
{
	for (long round = 0; round < scale * 5; round++) {
		char *buffer[8] = {0};
		size_t n[8] = {0};
		uint64_t s = (uint64_t)round + 1;
		for (int i = 0; i < 100000; i++) {
			int k = next(&s) % 8;
			size_t by = 1 + next(&s) % 200;
			buffer[k] = realloc(buffer[k], n[k] + by);
			memset(buffer[k] + n[k], k, by);
			n[k] += by;
		}
		for (int k = 0; k < 8; k++)
			free(buffer[k]);
	}
}

enum { RING = 1024 };
static struct ring { char *_Atomic slot[RING]; } rings[8];
static long per_thread;

static void *producer(void *arg)
{
	struct ring *r = arg;
	uint64_t s = (uintptr_t)r | 1;
	for (long i = 0; i < per_thread; i++) {
		size_t n = 16 + next(&s) % 240;
		char *p = malloc(n);
		p[0] = 1;
		while (__atomic_load_n(&r->slot[i % RING], __ATOMIC_ACQUIRE))
			sched_yield();
		__atomic_store_n(&r->slot[i % RING], p, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void *consumer(void *arg)
{
	struct ring *r = arg;
	for (long i = 0; i < per_thread; i++) {
		char *p;
		while (!(p = __atomic_exchange_n(&r->slot[i % RING], NULL, __ATOMIC_ACQ_REL)))
			sched_yield();
		free(p);
	}
	return NULL;
}

/* What one thread allocates another frees. */
static void remote(long scale)
{
	pthread_t t[4];
	per_thread = scale * 1000000;
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, i % 2 ? consumer : producer, &rings[i / 2]);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
}

static void *worker(void *arg)
{
	enum { LIVE = 2000 };
	char **live = calloc(LIVE, sizeof *live);
	uint64_t s = (uintptr_t)arg * 2654435761u + 1;
	for (long i = 0; i < per_thread; i++) {
		uint64_t r = next(&s);
		char **at = &live[r % LIVE];
		free(*at);
		size_t n = length(next(&s));
		*at = malloc(n);
		(*at)[0] = (*at)[n - 1] = 1;
	}
	for (int i = 0; i < LIVE; i++)
		free(live[i]);
	free(live);
	return NULL;
}

/* 16 threads, each with its own blocks. */
static void threads(long scale)
{
	pthread_t t[16];
	per_thread = scale * 200000;
	for (int i = 0; i < 16; i++)
		pthread_create(&t[i], NULL, worker, (void *)(intptr_t)(i + 1));
	for (int i = 0; i < 16; i++)
		pthread_join(t[i], NULL);
}

/* Threads that live for a few hundred blocks. */
static void births(long scale)
{
	per_thread = 3000;
	for (long i = 0; i < scale * 200; i++) {
		pthread_t t[4];
		for (int k = 0; k < 4; k++)
			pthread_create(&t[k], NULL, worker, (void *)(intptr_t)(i * 4 + k + 1));
		for (int k = 0; k < 4; k++)
			pthread_join(t[k], NULL);
	}
}

/* Blocks of 100 KiB to 4 MiB, a dozen live, written in part. */
static void large(long scale)
{
	char *live[12] = {0};
	uint64_t s = 42;
	for (long i = 0; i < scale * 5000; i++) {
		uint64_t r = next(&s);
		char **at = &live[r % 12];
		free(*at);
		size_t n = (100 << 10) + (r >> 8) % (r >> 60 ? 400 << 10 : 4 << 20);
		*at = r >> 32 & 1 ? malloc(n) : calloc(1, n);
		memset(*at, 1, n / 4);
	}
	for (int i = 0; i < 12; i++)
		free(live[i]);
}

int main(int argc, char **argv)
{
	static const struct { const char *name; void (*run)(long scale); } kernels[] = {
		{"churn", churn}, {"trees", trees}, {"growth", growth}, {"remote", remote}, {"threads", threads}, {"births", births}, {"large", large},
	};
	long scale = argc > 2 ? atol(argv[2]) : 1;
	for (size_t i = 0; argc > 1 && i < sizeof kernels / sizeof *kernels; i++)
		if (strcmp(argv[1], kernels[i].name) == 0) {
			kernels[i].run(scale);
			return 0;
		}
	fprintf(stderr, "usage: heap_work KERNEL SCALE\n");
	return 2;
}
