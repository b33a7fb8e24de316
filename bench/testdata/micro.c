// micro KIND N: does N operations of one kind and prints nanoseconds per operation, the median of eleven batches. Elapsed time, so
// that waiting counts, except for work that one thread does alone: there CPU time, which a busy machine disturbs less.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum { BATCHES = 11, DEPTH = 16 };

static pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER, lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_rwlock_t rwlock = PTHREAD_RWLOCK_INITIALIZER;
static long n;
static volatile long sink;

static double now(clockid_t clock) {
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}

static void *nothing(void *arg) { return arg; }

// The loops lie in a thread but for 'single', since a program that has never had a second thread may take shortcuts: glibc takes no lock prefixes there.
static void pairs(void) {
	for (long i = 0; i < n; i++) {
		pthread_mutex_lock(&lock);
		sink++;
		pthread_mutex_unlock(&lock);
	}
}

static void reads(void) {
	for (long i = 0; i < n; i++) {
		pthread_rwlock_rdlock(&rwlock);
		sink++;
		pthread_rwlock_unlock(&rwlock);
	}
}

static void nested(void) {
	for (long i = 0; i < n; i++) {
		pthread_mutex_lock(&outer);
		pthread_mutex_lock(&lock);
		sink++;
		pthread_mutex_unlock(&lock);
		pthread_mutex_unlock(&outer);
	}
}

static void blocks(void) {
	void *volatile keep[64];
	memset((void *)keep, 0, sizeof keep);
	for (long i = 0; i < n; i++) {
		void *volatile *p = &keep[i % 64];
		free(*p);
		*p = malloc(16 + i % 256);
	}
	for (int i = 0; i < 64; i++) free(keep[i]);
}

static void threads(void) {
	for (long i = 0; i < n; i++) {
		pthread_t t;
		if (pthread_create(&t, NULL, nothing, NULL) != 0) exit(1);
		pthread_join(t, NULL);
	}
}

static void *one_of_two(void *arg) {
	(void)arg;
	pairs();
	return NULL;
}

static void contended(void) {
	pthread_t t[2];
	for (int i = 0; i < 2; i++)
		if (pthread_create(&t[i], NULL, one_of_two, NULL) != 0) exit(1);
	for (int i = 0; i < 2; i++) pthread_join(t[i], NULL);
}

static void ping(void) {
	static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
	for (long i = 0; i < n; i++) {
		pthread_mutex_lock(&m);
		pthread_cond_signal(&c);
		pthread_mutex_unlock(&m);
	}
}

static void large(void) {
	for (long i = 0; i < n; i++) {
		char *volatile p = malloc(40000);
		p[0] = p[20000] = (char)i;
		free(p);
	}
}

static void mappings(void) {
	for (long i = 0; i < n; i++) {
		int *p = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		*p = 42;
		munmap(p, 4096);
	}
}

static __attribute__((noinline)) void deep(int depth, void (*fn)(void)) {
	if (depth > 0) deep(depth - 1, fn);
	else fn();
	sink++; // no tail call
}

static int by_value(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static const struct kind {
	const char *name;
	void (*fn)(void);
	int alone, depth, single;
} kinds[] = {
	{"lock", pairs, 1, 0, 0}, {"lock-single", pairs, 1, 0, 1}, {"lock-deep", pairs, 1, DEPTH, 0}, {"nested-deep", nested, 1, DEPTH, 0}, {"rdlock", reads, 1, 0, 0},
	{"signal", ping, 1, 0, 0}, {"malloc", blocks, 1, 0, 0}, {"malloc-deep", blocks, 1, DEPTH, 0}, {"create-join", threads, 0, 0, 0},
	{"contended", contended, 0, 0, 0}, {"malloc-large", large, 1, 0, 0}, {"mmap", mappings, 1, 0, 0},
};

static void *measure(void *arg) {
	const struct kind *k = arg;
	clockid_t clock = k->alone ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
	double batch[BATCHES];
	for (int i = 0; i < BATCHES; i++) {
		double start = now(clock);
		deep(k->depth, k->fn);
		batch[i] = (now(clock) - start) / n;
	}
	qsort(batch, BATCHES, sizeof *batch, by_value);
	printf("%.2f\n", batch[BATCHES / 2]);
	return NULL;
}

int main(int argc, char **argv) {
	if (argc != 3 || (n = atol(argv[2])) <= 0) return 2;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (strcmp(argv[1], kinds[i].name) == 0) {
			pthread_t t;
			if (kinds[i].single) measure((void *)&kinds[i]);
			else if (pthread_create(&t, NULL, measure, (void *)&kinds[i]) != 0) return 1;
			else pthread_join(t, NULL);
			return 0;
		}
	return 2;
}
