// Lines that threads take from each other, in turn: falsely (counters of two threads in one line, in a global structure and in a heap block), truly (one counter), and not (padded counters; memory
// that threads use one after the other). Threads meet again and again, so that each line is taken by each in each round.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 50, TIMES = 20 };

struct counters {
	long first;
	long second;
} __attribute__((aligned(64)));

struct padded {
	long count __attribute__((aligned(64)));
};

static struct counters near;
static struct padded apart[2] __attribute__((aligned(64)));
static struct padded both;
static struct counters *heap;
static char after[64] __attribute__((aligned(64)));
static pthread_barrier_t round_ends;

static void *count(void *arg)
{
	long me = (long)arg;
	for (int round = 0; round < ROUNDS; round++) {
		for (int i = 0; i < TIMES; i++) {
			if (me == 0) {
				((volatile struct counters *)&near)->first++;
				((volatile struct counters *)heap)->first++;
			} else {
				((volatile struct counters *)&near)->second++;
				((volatile struct counters *)heap)->second++;
			}
			((volatile struct padded *)apart)[me].count++;
		}
		pthread_barrier_wait(&round_ends);
		if (me == round % 2)
			((volatile struct padded *)&both)->count++;
		pthread_barrier_wait(&round_ends);
	}
	return NULL;
}

// One thread after the other has the line.
static void *alone(void *arg)
{
	for (int i = 0; i < 1000; i++)
		((volatile char *)after)[i % 64]++;
	return arg;
}

int main(void)
{
	pthread_t a, b;
	heap = aligned_alloc(64, sizeof *heap);
	*heap = (struct counters){0, 0};
	pthread_barrier_init(&round_ends, NULL, 2);
	pthread_create(&a, NULL, count, (void *)0);
	pthread_create(&b, NULL, count, (void *)1);
	pthread_join(a, NULL);
	pthread_join(b, NULL);
	for (int i = 0; i < 20; i++) {
		pthread_create(&a, NULL, alone, NULL);
		pthread_join(a, NULL);
	}
	printf("%ld %ld %ld\n", near.first + near.second + heap->first, apart[0].count, both.count);
	free(heap);
}
