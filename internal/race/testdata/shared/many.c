// Forty threads at once, more than there are protection keys, each with memory of its own that it works upon between sleeps and locks, so that keys go from one to another; and each looks once at what is another's
// alone until then. Whichever of the two has a key at that time, or none, that is a race with what the other writes next. Who looks does nothing else until that was written: what is private to it, and touched by
// another, would be a pardon of its look (docs/decisions.md, 36).
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { THREADS = 40, SMALL = 30, LARGE = 100000, ROUNDS = 8 };

static long *beats[THREADS]; // each its thread's alone, in a block of its own
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t all;
static int looking; // under the lock
static long sum;

#define PAIR(n) \
	static __attribute__((noinline)) void pair##n(volatile long *beat, int mine) { if (mine) ++*beat; else for (long was = *beat; *beat == was;) usleep(1000); }

PAIR(0) // race-mov p0
PAIR(1) // race-mov p1
PAIR(2) // race-mov p2
PAIR(3) // race-mov p3
PAIR(4) // race-mov p4
PAIR(5) // race-mov p5
PAIR(6) // race-mov p6
PAIR(7) // race-mov p7
PAIR(8) // race-mov p8
PAIR(9) // race-mov p9
PAIR(10) // race-mov p10
PAIR(11) // race-mov p11
PAIR(12) // race-mov p12
PAIR(13) // race-mov p13
PAIR(14) // race-mov p14
PAIR(15) // race-mov p15
PAIR(16) // race-mov p16
PAIR(17) // race-mov p17
PAIR(18) // race-mov p18
PAIR(19) // race-mov p19
PAIR(20) // race-mov p20
PAIR(21) // race-mov p21
PAIR(22) // race-mov p22
PAIR(23) // race-mov p23
PAIR(24) // race-mov p24
PAIR(25) // race-mov p25
PAIR(26) // race-mov p26
PAIR(27) // race-mov p27
PAIR(28) // race-mov p28
PAIR(29) // race-mov p29
PAIR(30) // race-mov p30
PAIR(31) // race-mov p31
PAIR(32) // race-mov p32
PAIR(33) // race-mov p33
PAIR(34) // race-mov p34
PAIR(35) // race-mov p35
PAIR(36) // race-mov p36
PAIR(37) // race-mov p37
PAIR(38) // race-mov p38
PAIR(39) // race-mov p39

static void (*const pairs[])(volatile long *beat, int mine) = {pair0, pair1, pair2, pair3, pair4, pair5, pair6, pair7, pair8, pair9, pair10, pair11, pair12, pair13, pair14, pair15, pair16, pair17, pair18, pair19, pair20, pair21, pair22, pair23, pair24, pair25, pair26, pair27, pair28, pair29, pair30, pair31, pair32, pair33, pair34, pair35, pair36, pair37, pair38, pair39};

static void work(char *small[], long *large, long n)
{
	for (int i = 0; i < SMALL; i++)
		for (int k = 0; k < 100; k++)
			small[i][k] = (char)(small[i][k] + n);
	for (int i = 0; i < LARGE / 8; i += 64)
		large[i] += n;
	usleep(2000);
	pthread_mutex_lock(&lock);
	sum += n;
	pthread_mutex_unlock(&lock);
}

static int lookers(int more)
{
	pthread_mutex_lock(&lock);
	int n = looking += more;
	pthread_mutex_unlock(&lock);
	return n;
}

static void *run(void *arg)
{
	long n = (long)(intptr_t)arg, result = 0;
	char *small[SMALL];
	for (int i = 0; i < SMALL; i++)
		small[i] = calloc(1, 100 + (size_t)i * 50);
	long *large = calloc(1, LARGE);
	beats[n] = calloc(1, n & 2 ? 64 : LARGE);
	for (int i = 0; i < ROUNDS; i++) {
		work(small, large, n);
		pairs[n](beats[n], 1);
	}
	// Those of even numbers look first.
	for (long turn = 0; turn < 2; turn++) {
		if (pthread_barrier_wait(&all) == PTHREAD_BARRIER_SERIAL_THREAD)
			lookers(THREADS / 2);
		pthread_barrier_wait(&all);
		if (turn == (n & 1)) {
			pairs[n ^ 1](beats[n ^ 1], 0);
			lookers(-1);
		} else
			while (lookers(0)) {
				work(small, large, n);
				pairs[n](beats[n], 1);
			}
	}
	for (int i = 0; i < SMALL; i++) {
		result += small[i][7] == small[i][99];
		free(small[i]);
	}
	free(large);
	return (void *)result;
}

int main(void)
{
	pthread_t t[THREADS];
	long right = 0;
	pthread_barrier_init(&all, NULL, THREADS);
	for (long i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, run, (void *)(intptr_t)i);
	for (int i = 0; i < THREADS; i++) {
		void *r;
		pthread_join(t[i], &r);
		right += (long)(intptr_t)r;
	}
	printf("%ld\n", right);
	return 0;
}
