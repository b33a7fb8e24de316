// Checkpoints and rollbacks of a heap by the share of its pages that is written in between. Preloaded with the agent, outside of a session; what they take is also said by rollbacks that are over, so figures lie in shared memory.
// Arguments: MiB, rounds, flags of rs_guard_begin, and how far behind the agent's pthread_create rs_guard_begin, _checkpoint and _rollback are.
// Prints the ns of a memcpy of as much and of the first checkpoint, and for each share: percent, ns of the writes before there is a checkpoint, after one, of the checkpoint, of the rollback.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { PAGE = 4096, SHARES = 4, MOST = 32 };
static const int percent[SHARES] = {0, 1, 10, 100};

struct shared {
	int share, round, rounds;
	uint8_t value;
	uint64_t at, copy[MOST], first, plain[SHARES][MOST], written[SHARES][MOST], checkpoint[SHARES][MOST], rollback[SHARES][MOST];
} *s;
static char *heap;
static size_t bytes;

static uint64_t now(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts); // the coordinator is a task of this process
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static uint64_t since(uint64_t at) { return now() - at; }

static uint64_t dirty(int share)
{
	uint64_t at = now();
	s->value++;
	for (size_t p = 0; percent[share] && p < bytes; p += (size_t)PAGE * 100 / (size_t)percent[share])
		*(volatile uint8_t *)(heap + p) = s->value;
	return since(at);
}

static int by_size(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
	return x < y ? -1 : x > y;
}

static unsigned long median(uint64_t *v)
{
	qsort(v, (size_t)s->rounds, sizeof *v, by_size);
	return v[s->rounds / 2];
}

int main(int argc, char **argv)
{
	if (argc < 7)
		return 2;
	char *agent = dlsym(RTLD_DEFAULT, "pthread_create");
	long (*begin)(unsigned) = (long (*)(unsigned))(agent + atol(argv[4]));
	long (*checkpoint)(void) = (long (*)(void))(agent + atol(argv[5]));
	long (*rollback)(void) = (long (*)(void))(agent + atol(argv[6]));
	bytes = (size_t)atol(argv[1]) << 20;
	s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	heap = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *other = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (s == MAP_FAILED || heap == MAP_FAILED || other == MAP_FAILED)
		return 3;
	s->rounds = atoi(argv[2]) < MOST ? atoi(argv[2]) : MOST;
	memset(heap, 1, bytes);
	memset(other, 1, bytes);
	for (int k = 0; k < s->rounds; k++) {
		uint64_t at = now();
		memcpy(other, heap, bytes);
		s->copy[k] = since(at);
		for (int i = 0; i < SHARES; i++)
			s->plain[i][k] = dirty(i);
	}
	munmap(other, bytes);
	long r = begin((unsigned)atoi(argv[3]));
	s->at = now();
	if (r < 0 || checkpoint() < 0) {
		fprintf(stderr, "no checkpoint (%ld)\n", r);
		return 4;
	}
	s->first = since(s->at);
	for (s->share = 0; s->share < SHARES; s->share++)
		for (s->round = -1; s->round < s->rounds; s->round++) { // the first shows what there is to write
			uint64_t took = dirty(s->share);
			s->at = now();
			r = checkpoint();
			uint64_t ns = since(s->at);
			if (r < 0)
				return 5;
			if (r == 0) {
				if (s->round >= 0) {
					s->written[s->share][s->round] = took;
					s->checkpoint[s->share][s->round] = ns;
				}
				dirty(s->share);
				s->at = now();
				rollback();
				return 6;
			}
			if (s->round >= 0)
				s->rollback[s->share][s->round] = ns;
		}
	printf("%lu %lu\n", median(s->copy), (unsigned long)s->first);
	for (int i = 0; i < SHARES; i++)
		printf("%d %lu %lu %lu %lu\n", percent[i], median(s->plain[i]), median(s->written[i]), median(s->checkpoint[i]), median(s->rollback[i]));
	return 0;
}
