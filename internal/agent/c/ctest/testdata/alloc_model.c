// Random calls of the malloc family by several threads, against a model: each block has its own contents, checked before it changes or goes. Blocks are handed over between
// threads, threads come and go, and children are forked in the midst of it, which free and allocate as well. Usage: alloc_model THREADS ROUNDS STEPS
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SLOTS = 3000, PASSED = 512 };

struct slot { unsigned char *p; size_t n; unsigned char value; };

static struct slot *passed[PASSED];
static long steps;

static uint64_t next(uint64_t *s)
{
	*s ^= *s << 13;
	*s ^= *s >> 7;
	*s ^= *s << 17;
	return *s;
}

static void fail(const char *what)
{
	fprintf(stderr, "%s\n", what);
	_exit(1);
}

static void check(const struct slot *s, size_t n)
{
	for (size_t i = 0; i < n; i += n > 4096 ? 997 : 1)
		if (s->p[i] != s->value)
			fail("a block has other contents");
	if (n && s->p[n - 1] != s->value)
		fail("a block's end has other contents");
}

static size_t length(uint64_t r)
{
	unsigned kind = r % 1000;
	r >>= 10;
	return kind < 700 ? r % 300 : kind < 980 ? r % 3000 : kind < 998 ? r % 100000 : r % 3000000;
}

static void fill(struct slot *s)
{
	if (((uintptr_t)s->p & 15) || malloc_usable_size(s->p) < s->n)
		fail("a block is not aligned, or too short");
	memset(s->p, s->value, s->n);
}

static void make(struct slot *s, uint64_t r, uint64_t q)
{
	s->n = length(q);
	s->value = (unsigned char)r;
	if (r % 5 == 0) {
		s->p = calloc(1, s->n);
		for (size_t i = 0; i < s->n; i++)
			if (s->p[i])
				fail("calloc's block is not zero");
	} else if (r % 7 == 0) {
		size_t align = 16ul << (r >> 20) % ((r >> 40) % 100 ? 9 : 18);
		if (posix_memalign((void **)&s->p, align, s->n) != 0 || (uintptr_t)s->p % align)
			fail("posix_memalign's block is not aligned");
	} else {
		s->p = malloc(s->n);
	}
	fill(s);
}

static void step(struct slot *slots, uint64_t *seed)
{
	uint64_t r = next(seed), q = next(seed);
	struct slot *s = &slots[(r >> 50) % SLOTS];
	if (r % 16 == 0) {
		struct slot *mine = NULL;
		if (s->p) {
			mine = malloc(sizeof *mine);
			*mine = *s;
			s->p = NULL;
		}
		struct slot *other = __atomic_exchange_n(&passed[q % PASSED], mine, __ATOMIC_ACQ_REL);
		if (other) {
			check(other, other->n);
			free(other->p);
			free(other);
		}
	} else if (!s->p) {
		make(s, r, q);
	} else if (r % 3 == 0) {
		size_t n = length(q) + 1;
		check(s, s->n);
		s->p = realloc(s->p, n);
		check(s, n < s->n ? n : s->n);
		s->n = n;
		fill(s);
	} else {
		check(s, s->n);
		free(s->p);
		s->p = NULL;
	}
}

static void *worker(void *arg)
{
	uint64_t seed = (uintptr_t)arg * 0x9e3779b97f4a7c15ull | 1;
	struct slot *slots = calloc(SLOTS, sizeof *slots);
	for (long i = 0; i < steps; i++) {
		step(slots, &seed);
		if (i % (steps / 2) == steps / 4 && (uintptr_t)arg % 3 == 0) {
			pid_t child = fork();
			if (child == 0) { /* with all of this thread's blocks, and whatever is handed over */
				for (int k = 0; k < 2000; k++)
					step(slots, &seed);
				for (int k = 0; k < SLOTS; k++)
					free(slots[k].p);
				pthread_t t;
				steps = 1000;
				if (pthread_create(&t, NULL, worker, (void *)1) != 0 || pthread_join(t, NULL) != 0)
					fail("no thread in the child");
				_exit(0);
			}
			int status;
			if (waitpid(child, &status, 0) != child || status != 0)
				fail("a child failed");
		}
	}
	for (int k = 0; k < SLOTS; k++) {
		if (slots[k].p)
			check(&slots[k], slots[k].n);
		free(slots[k].p);
	}
	free(slots);
	return NULL;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 4, rounds = argc > 2 ? atoi(argv[2]) : 3;
	steps = argc > 3 ? atol(argv[3]) : 20000;
	for (int round = 0; round < rounds; round++) {
		pthread_t t[64];
		for (int i = 0; i < threads; i++)
			pthread_create(&t[i], NULL, worker, (void *)(intptr_t)(round * 64 + i + 1));
		for (int i = 0; i < threads; i++)
			pthread_join(t[i], NULL);
	}
	puts("ok");
}
