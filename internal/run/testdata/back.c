// Memory that is moved away and back again by mremap, beside memory that stays where it is and is written all the time. Its status is 3.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { PARTS = 8, PART = 64 << 12, WORDS = PART / 8, APART = WORDS / 4 /* few pages are written between two steps */, STEPS = 400 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t *part[PARTS], is[PARTS];

static void check(int step, int p)
{
	for (int i = 0; i < WORDS; i += APART)
		if (part[p][i] != is[p] + (uint64_t)i) {
			fprintf(stderr, "step %d: part %d, word %d: %llx, not %llx\n", step, p, i, (unsigned long long)part[p][i], (unsigned long long)(is[p] + (uint64_t)i));
			exit(5);
		}
}

static void fill(int p, uint64_t with)
{
	is[p] = with;
	for (int i = 0; i < WORDS; i += APART)
		part[p][i] = with + (uint64_t)i;
}

int main(void)
{
	char *all = mmap(NULL, PARTS * PART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t *away = mmap(NULL, PART, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (all == MAP_FAILED || away == (void *)MAP_FAILED)
		return 6;
	memset(all, 1, PARTS * PART);
	for (int p = 0; p < PARTS; p++) {
		part[p] = (uint64_t *)(all + p * PART);
		fill(p, (uint64_t)p << 32);
	}
	for (int step = 0; step < STEPS; step++) {
		int p = step * 5 % (PARTS - 1), moves = PARTS - 1;
		uint64_t *to = step % 64 != 0 ? (uint64_t *)(all + moves * PART) : away; // an epoch or more lies between, and more until the next time
		if (step % 32 == 0 && part[moves] != to) {
			if (mremap(part[moves], PART, PART, MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to) != (void *)to)
				return 7;
			part[moves] = to;
		}
		check(step, p);
		fill(p, (uint64_t)step << 40);
		pthread_mutex_lock(&lock); // an event, where an epoch may end
		pthread_mutex_unlock(&lock);
		if (step % 8 == 7)
			nanosleep(&(struct timespec){0, 4000000}, NULL);
	}
	for (int p = 0; p < PARTS; p++)
		check(STEPS, p);
	return 3;
}
