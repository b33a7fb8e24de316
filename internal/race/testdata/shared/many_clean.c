// Forty threads at once, more than there are protection keys, which work upon memory of their own between sleeps and locks, hand blocks on to each other under a lock, and look at what they may touch: no two of them
// ever have one key at a time.
#include <cpuid.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 40, SMALL = 20, LARGE = 100000, ROUNDS = 25, KEYS = 16 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t all;
static struct item { struct item *next; long n; char bytes[200]; } *items; // under the lock
static int holder[KEYS];
static int keys, twice, signals;

static unsigned open_keys(void)
{
	unsigned a, d, open = 0;
	__asm__ volatile("rdpkru" : "=a"(a), "=d"(d) : "c"(0));
	for (unsigned k = 1; k < KEYS; k++)
		open |= (a >> 2 * k & 1 ? 0 : 1u) << k;
	return open;
}

// While code of the program runs nobody else has the key that this thread has. Where all is open nothing is watched.
static void alone(int me)
{
	unsigned open = keys ? open_keys() : 0;
	if (!open || open & (open - 1))
		return;
	int *h = &holder[__builtin_ctz(open)], free = 0;
	if (!__atomic_compare_exchange_n(h, &free, me, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
		if (free != me)
			__atomic_fetch_add(&twice, 1, __ATOMIC_RELAXED);
		return;
	}
	for (int i = 0; i < 50; i++)
		__asm__ volatile("pause");
	unsigned now = open_keys();
	if (__atomic_exchange_n(h, 0, __ATOMIC_RELAXED) != me && now == open)
		__atomic_fetch_add(&twice, 1, __ATOMIC_RELAXED);
}

// It sleeps, so that the key of whom it interrupts may be taken.
static void handler(int sig)
{
	(void)sig;
	usleep(3000);
	__atomic_fetch_add(&signals, 1, __ATOMIC_RELAXED);
}

static void *run(void *arg)
{
	int me = (int)(intptr_t)arg + 1;
	long result = 0;
	char *small[SMALL];
	for (int i = 0; i < SMALL; i++)
		small[i] = calloc(1, 100 + (size_t)i * 50);
	long *large = calloc(1, LARGE);
	pthread_barrier_wait(&all);
	for (int round = 0; round < ROUNDS; round++) {
		alone(me);
		for (int i = 0; i < SMALL; i++)
			for (int k = 0; k < 100; k++)
				small[i][k] = (char)(small[i][k] * 3 + me + k);
		for (int i = 0; i < LARGE / 8; i += 32)
			large[i] += me * round + i;
		alone(me);
		if (round % 8 == me % 8)
			raise(SIGUSR1);
		alone(me);
		usleep(1000 + (unsigned)me * 50);
		struct item *mine = malloc(sizeof *mine);
		mine->n = me;
		memset(mine->bytes, me, sizeof mine->bytes);
		pthread_mutex_lock(&lock);
		mine->next = items;
		items = mine;
		pthread_mutex_unlock(&lock);
		alone(me);
		pthread_mutex_lock(&lock);
		struct item *got = items;
		items = got->next;
		pthread_mutex_unlock(&lock);
		if (got->bytes[0] != got->n || got->bytes[199] != got->n)
			abort();
		got->bytes[5] = 0;
		free(got);
		alone(me);
	}
	for (int i = 0; i < SMALL; i++)
		for (int k = 0; k < 100; k++)
			result = result * 31 + small[i][k];
	for (int i = 0; i < LARGE / 8; i++)
		result = result * 31 + large[i];
	for (int i = 0; i < SMALL; i++)
		free(small[i]);
	free(large);
	return (void *)result;
}

int main(void)
{
	unsigned a, b, c = 0, d;
	pthread_t t[THREADS];
	keys = __get_cpuid_count(7, 0, &a, &b, &c, &d) && c >> 4 & 1; // OSPKE
	signal(SIGUSR1, handler);
	pthread_barrier_init(&all, NULL, THREADS);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, run, (void *)(intptr_t)i);
	unsigned long hash = 0;
	for (int i = 0; i < THREADS; i++) {
		void *r;
		pthread_join(t[i], &r);
		hash = hash * 1000003 + (unsigned long)(intptr_t)r;
	}
	printf("%lx, %d signals, %d keys had twice\n", hash, signals, twice);
	return twice != 0;
}
