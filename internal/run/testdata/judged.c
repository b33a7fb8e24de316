// Errors of one epoch that only a look at all accesses shows: a race that leads to a crash, and reads of freed memory before one. Threads are in an order by sleeping alone. Arguments: which, how many threads.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FUNCTION __attribute__((noinline, noclone)) static

enum { MOST = 8, TIMES = 20 };
struct node { long value[4]; struct node *next; };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t begin;
static long total, there = 42;
static long *volatile shared;
static struct node *volatile list;
static volatile long sink;
static long *volatile nowhere;

static void nap(long ms)
{
	struct timespec ts = {0, ms * 1000000};
	nanosleep(&ts, NULL);
}

// What is in order.
FUNCTION void add(void)
{
	for (int i = 0; i < TIMES; i++) {
		char *p = malloc(32);
		memset(p, i, 32);
		pthread_mutex_lock(&lock);
		total += p[3];
		pthread_mutex_unlock(&lock);
		free(p);
	}
}

FUNCTION void take_away(void) { shared = NULL; }
FUNCTION void use(void) { sink = *shared; }
#define NO_TAIL_CALL() __asm__ volatile("")
FUNCTION struct node *make(void)
{
	struct node *n = calloc(1, sizeof *n);
	NO_TAIL_CALL();
	return n;
}
FUNCTION void give_up(struct node *n)
{
	free(n);
	NO_TAIL_CALL();
}
FUNCTION long look(const struct node *n) { return n->value[2]; }
FUNCTION void crash(void) { sink = *nowhere; }

static void *taker(void *arg)
{
	pthread_barrier_wait(&begin);
	add();
	nap(150);
	take_away();
	nap(1500);
	return arg;
}

static void *ender(void *arg)
{
	pthread_barrier_wait(&begin);
	add();
	nap(150);
	give_up(list);
	nap(1500);
	return arg;
}

static void *adder(void *arg)
{
	pthread_barrier_wait(&begin);
	add();
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t t[MOST];
	int threads = argc > 2 ? atoi(argv[2]) : 2;
	int freed = argc > 1 && !strcmp(argv[1], "freed"), own = argc > 1 && !strcmp(argv[1], "own");
	shared = &there;
	pthread_barrier_init(&begin, NULL, (unsigned)threads);
	list = make();
	for (int i = 1; i < threads; i++)
		pthread_create(&t[i], NULL, i > 1 ? adder : freed ? ender : own ? adder : taker, NULL);
	pthread_barrier_wait(&begin);
	add();
	if (own)
		give_up(list);
	if (freed || own) {
		nap(600);
		sink = look(list);
		crash();
	}
	if (shared) {
		nap(600);
		use();
	}
	puts("no crash");
	return 0;
}
