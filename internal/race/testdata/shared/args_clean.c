// What threads begin with, written by who makes them before, by them alone afterwards, and read once they are joined: blocks, closures with pointers to what they work upon, and to what they do not (a block that is free, the middle of one,
// memory that cannot be read, main's stack), arguments that are none; a thread that is made on a stack in watched memory, with an argument there.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { ROUNDS = 20, THREADS = 4, BYTES = 3000, STACK = 256 << 10 };

struct job { long n, sum; unsigned char byte[BYTES]; };
struct closure { struct job *job; void *other[6]; };

static ucontext_t home, there;
static long total;

static void *work(void *arg)
{
	struct closure *c = arg;
	for (int i = 0; i < BYTES; i++)
		c->job->sum += c->job->byte[i] ^= (unsigned char)c->job->n;
	return c;
}

static void *plain(void *arg)
{
	*(long *)arg += 5;
	return arg;
}

static void *none(void *arg) { return (char *)arg + 1; }

static void round_of(int r)
{
	pthread_t t[THREADS], other;
	struct closure *c[THREADS];
	void *closed = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *value;
	char *gone = malloc(40);
	volatile uintptr_t was = (uintptr_t)gone;
	memset(closed, 1, 100);
	mprotect(closed, 1 << 16, PROT_NONE);
	free(gone);
	for (int i = 0; i < THREADS; i++) {
		c[i] = malloc(sizeof *c[i]);
		c[i]->job = calloc(1, sizeof *c[i]->job);
		c[i]->job->n = r + i;
		memset(c[i]->job->byte, i, BYTES);
		memcpy(c[i]->other, (void *[]){closed, (void *)was, (char *)c[0]->job + 77, &c, (void *)-1l, (void *)(1ul << 62)}, sizeof c[i]->other);
		if (pthread_create(&t[i], NULL, work, c[i]) != 0)
			abort();
	}
	long *counted = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	*counted = r;
	if (pthread_create(&other, NULL, plain, counted) != 0 || pthread_join(other, &value) != 0 || *(long *)value != r + 5)
		abort();
	if (pthread_create(&other, NULL, none, (void *)(uintptr_t)r) != 0 || pthread_join(other, &value) != 0 || value != (char *)(uintptr_t)r + 1)
		abort();
	for (int i = 0; i < THREADS; i++) {
		if (pthread_join(t[i], &value) != 0 || value != c[i])
			abort();
		total += c[i]->job->sum;
		free(c[i]->job);
		free(c[i]);
	}
	munmap(closed, 1 << 16);
	munmap(counted, 1 << 16);
}

/* On a stack of malloc's, and on one of mmap's. */
static void coroutine(void)
{
	pthread_t t;
	long local = 7;
	void *value;
	if (pthread_create(&t, NULL, plain, &local) != 0 || pthread_join(t, &value) != 0 || local != 12)
		abort();
	total += local;
}

int main(void)
{
	for (int i = 0; i < ROUNDS; i++)
		round_of(i);
	for (int i = 0; i < 2; i++) {
		void *stack = i ? malloc(STACK) : mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		getcontext(&there);
		there.uc_stack.ss_sp = stack;
		there.uc_stack.ss_size = STACK;
		there.uc_link = &home;
		makecontext(&there, coroutine, 0);
		swapcontext(&home, &there);
	}
	printf("%ld\n", total);
	return 0;
}
