// Loops that mode timer is measured on: sampled KIND N.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define WORDS (1 << 15) // 128 KiB, which is past the innermost cache

static long n;
static int there[2], back[2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static int over;
static unsigned shared[WORDS];

static void *answer(void *arg) {
	char c;
	for (long i = 0; i < n; i++)
		if (read(there[0], &c, 1) != 1 || write(back[1], &c, 1) != 1)
			abort();
	return arg;
}

// Two threads on one processor hand a byte to and fro: each step is a switch.
static void switches(void) {
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	if (sched_setaffinity(0, sizeof one, &one) || pipe(there) || pipe(back))
		abort();
	pthread_t t;
	pthread_create(&t, 0, answer, 0);
	char c = 0;
	for (long i = 0; i < n; i++)
		if (write(there[1], &c, 1) != 1 || read(back[0], &c, 1) != 1)
			abort();
	pthread_join(t, 0);
}

static void calls(void) {
	for (long i = 0; i < n; i++)
		syscall(SYS_getppid);
}

// Work on shared memory, each on a part of its own.
static void *compute(void *arg) {
	unsigned *mine = shared + (long)arg * (WORDS / 2), x = 1;
	for (long i = 0; i < n; i++) {
		unsigned *p = &mine[x % (WORDS / 2)];
		x = x * 1664525 + *p + (unsigned)i;
		if (x >> 7 & 1)
			*p ^= x;
	}
	return arg;
}

static void two(void) {
	pthread_t t;
	pthread_create(&t, 0, compute, (void *)1);
	compute(0);
	pthread_join(t, 0);
}

static void *sleeper(void *arg) {
	pthread_mutex_lock(&mutex);
	while (!over)
		pthread_cond_wait(&never, &mutex);
	pthread_mutex_unlock(&mutex);
	return arg;
}

static void idle(void) {
	enum { threads = 64 };
	pthread_t t[threads];
	for (int i = 0; i < threads; i++)
		pthread_create(&t[i], 0, sleeper, 0);
	compute(0);
	pthread_mutex_lock(&mutex);
	over = 1;
	pthread_cond_broadcast(&never);
	pthread_mutex_unlock(&mutex);
	for (int i = 0; i < threads; i++)
		pthread_join(t[i], 0);
}

static void *nothing(void *arg) { return arg; }

static void starts(void) {
	for (long i = 0; i < n; i++) {
		pthread_t t;
		pthread_create(&t, 0, nothing, 0);
		pthread_join(t, 0);
	}
}

int main(int argc, char **argv) {
	static const struct {
		const char *name;
		void (*run)(void);
	} kinds[] = {{"switches", switches}, {"calls", calls}, {"two", two}, {"idle", idle}, {"starts", starts}};
	n = argc > 2 ? atol(argv[2]) : 0;
	for (unsigned i = 0; argc > 2 && i < sizeof kinds / sizeof *kinds; i++)
		if (!strcmp(argv[1], kinds[i].name)) {
			kinds[i].run();
			return 0;
		}
	fprintf(stderr, "usage: sampled KIND N\n");
	return 2;
}
