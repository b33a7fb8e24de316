// Threads that race on pointers, hand each other work on their stacks by plain loads and stores, and share tables under a lock: nothing that is
// remembered of memory may be believed where another thread writes.
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CELLS = 64 };
static int ROUNDS = 400;

struct cell {
	struct cell *next;
	long value;
};
static struct cell cells[2][CELLS];
static struct cell *volatile raced; // two threads store, all load: no lock
static int raced_index;             // likewise, and it is an index
static long table[CELLS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct task {
	long index;  // the worker's answer, on the stack of who asked
	struct cell *answer;
	int done;
};
static struct task *mailbox;

__attribute__((noinline)) static long ask(long n) {
	struct task t = {n, &cells[0][0], 0};
	__atomic_store_n(&mailbox, &t, __ATOMIC_RELEASE); // a plain store
	while (!__atomic_load_n(&t.done, __ATOMIC_ACQUIRE)) // a plain load
		;
	return t.answer->value + table[t.index];
}

static void *worker(void *arg) {
	(void)arg;
	for (int i = 0; i < ROUNDS; i++) {
		struct task *t;
		while (!(t = __atomic_load_n(&mailbox, __ATOMIC_ACQUIRE)))
			;
		__atomic_store_n(&mailbox, NULL, __ATOMIC_RELEASE);
		t->index = (t->index * 7 + 3) % CELLS;
		t->answer = &cells[1][t->index];
		__atomic_store_n(&t->done, 1, __ATOMIC_RELEASE);
	}
	return NULL;
}

static void *asker(void *arg) {
	long sum = 0;
	for (int i = 0; i < ROUNDS; i++)
		sum += ask(i);
	*(long *)arg = sum;
	return NULL;
}

static void *racer(void *arg) {
	long id = (long)arg, sum = 0;
	for (int i = 0; i < ROUNDS * 8; i++) {
		raced = &cells[id][i % CELLS];
		__atomic_store_n(&raced_index, i % CELLS, __ATOMIC_RELAXED);
		sum += raced->value; // may be the other's
		sum += table[__atomic_load_n(&raced_index, __ATOMIC_RELAXED)];
		if (i % 16 == 0) {
			pthread_mutex_lock(&lock);
			table[i % CELLS] += raced->next ? 1 : 2;
			pthread_mutex_unlock(&lock);
		}
	}
	return (void *)(sum & 1);
}

// Recursion with saved registers, and frames without pointers to them.
__attribute__((noinline)) static long walk(struct cell *c, long depth) {
	long a = c->value, b = depth * 3, keep = a ^ b;
	if (depth > 0)
		a += walk(c->next ? c->next : c, depth - 1);
	return a + b + keep + table[(a + b) & (CELLS - 1)];
}

static void *walker(void *arg) {
	long sum = 0;
	for (int i = 0; i < ROUNDS / 8; i++)
		sum += walk(&cells[i & 1][i % CELLS], 12);
	*(long *)arg = sum;
	return NULL;
}

int main(int argc, char **argv) {
	if (argc > 1)
		ROUNDS = atoi(argv[1]);
	for (int k = 0; k < 2; k++)
		for (int i = 0; i < CELLS; i++)
			cells[k][i] = (struct cell){i + 1 < CELLS ? &cells[k][i + 1] : NULL, i};
	pthread_t t[5];
	long out[2];
	pthread_create(&t[0], NULL, worker, NULL);
	pthread_create(&t[1], NULL, asker, &out[0]);
	pthread_create(&t[2], NULL, racer, (void *)0);
	pthread_create(&t[3], NULL, racer, (void *)1);
	pthread_create(&t[4], NULL, walker, &out[1]);
	for (int i = 0; i < 5; i++)
		pthread_join(t[i], NULL);
	puts("done");
	return 0;
}
