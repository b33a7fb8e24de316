/* Threads that use the detector at once: all that they share is ordered, by mutexes, atomics, mailboxes, create and join, free and malloc, so no race may be found; but in each round two of them race on purpose,
 * which must be found. Handlers interrupt them in the middle of it, where the argument `signals` says so. `bench`: nanoseconds for an access instead. */
#define _GNU_SOURCE 1
#include "../../race.h"
#include "../../zz_wire.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* os.h's system calls look whether memory is watched by keys. */
uint32_t rs_os_detour;
long rs_os_detour6(long n, long a, long b, long c, long d, long e, long f);
long rs_os_detour6(long n, long a, long b, long c, long d, long e, long f) { return n + a + b + c + d + e + f; }

void *rs_os_map(size_t bytes);
void *rs_os_map(size_t bytes)
{
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

enum { THREADS = 8, LOCKS = 16, BOXES = 8, FLAGS = 2000, ROUNDS = 10, SIG = SIGUSR1 };
static uint32_t flags[THREADS / 2][ROUNDS][FLAGS][4];
static pthread_mutex_t lock[LOCKS];
static uint64_t block_of[LOCKS];
static struct { uint64_t full, from; } box[BOXES];
static uint64_t counters[4], iterations;
static __thread uint32_t me;
static __thread struct rs_race_thread *self;
static pthread_t handles[THREADS];
static volatile int running;

#define EVENT(number, ID, name, ...) do { uint64_t w_[16] = {RS_EV_##ID}; rs_put_##name(w_, __VA_ARGS__); rs_race_event(number, w_); } while (0)

static void touch(uintptr_t addr, uint64_t size, unsigned kind, uintptr_t pc)
{
	rs_race_access(self, addr, size, kind, pc, 0);
}

static uint64_t next(uint64_t *r)
{
	*r ^= *r << 13;
	*r ^= *r >> 7;
	*r ^= *r << 17;
	return *r;
}

static void locked(uint64_t *p, uint64_t add, uintptr_t pc)
{
	rs_race_access(self, (uintptr_t)p, 8, RS_RACE_READ | RS_RACE_WRITE | RS_RACE_ATOMIC, pc, 0);
	__atomic_fetch_add(p, add, __ATOMIC_SEQ_CST);
	rs_race_access(self, (uintptr_t)p, 8, RS_RACE_ATOMIC | RS_RACE_DONE, pc, 0);
}

static void on_signal(int sig)
{
	(void)sig;
	if (!self)
		return;
	EVENT(me, SIGNAL_ENTER, signal_enter, SIG, (uint32_t)-6, 0);
	touch(0x900000000ull + me * 4096, 8, RS_RACE_WRITE, 0x9000 + me);
	locked(&counters[3], 1, 0x9100);
	EVENT(me, SIGNAL_LEAVE, signal_leave, SIG);
}

/* Memory of a mutex: accesses of all sizes, and a block that is freed and had again. */
static void under_lock(uint64_t *r)
{
	unsigned m = (unsigned)(next(r) % LOCKS);
	uint64_t base = 0x100000000ull + m * 0x10000, n = next(r) % 6;
	pthread_mutex_lock(&lock[m]);
	EVENT(me, ACQUIRE, acquire, 0x10000 + m * 64, RS_OBJECT_MUTEX, 0, 0, 0);
	while (n--) {
		uint64_t size = 1ull << next(r) % 5;
		touch(base + next(r) % 200, size, 1 + (unsigned)(next(r) % 3), 0x1000 + m);
	}
	if (next(r) % 8 == 0) {
		uint64_t at = 0x200000000ull + m * 0x10000;
		if (block_of[m]) {
			touch(at + next(r) % (block_of[m] - 8), 8, RS_RACE_WRITE, 0x1100 + m);
			EVENT(me, FREE, free, at, 1, RS_ALLOC_FREE);
			block_of[m] = 0;
		} else {
			block_of[m] = 16 + next(r) % 300;
			EVENT(me, ALLOC, alloc, at, block_of[m], 2, RS_ALLOC_MALLOC);
		}
	}
	EVENT(me, RELEASE, release, 0x10000 + m * 64, RS_OBJECT_MUTEX, 0, 0);
	pthread_mutex_unlock(&lock[m]);
}

/* A mailbox: who finds it empty fills it and says so by an exchange, who finds it full by a plain load empties it. */
static void mailbox(uint64_t *r)
{
	unsigned b = (unsigned)(next(r) % BOXES);
	uintptr_t state = (uintptr_t)&box[b].full, payload = 0x300000000ull + b * 4096;
	uint64_t seen = __atomic_load_n(&box[b].full, __ATOMIC_ACQUIRE);
	rs_race_access(self, state, 8, RS_RACE_READ, 0x2000, 0);
	if (seen == 1)
		return;
	/* 0 empty, 2 full, 1 somebody is at it */
	rs_race_access(self, state, 8, RS_RACE_READ | RS_RACE_WRITE | RS_RACE_ATOMIC, 0x2001, 0);
	bool mine = __atomic_compare_exchange_n(&box[b].full, &seen, 1, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	rs_race_access(self, state, 8, RS_RACE_ATOMIC | RS_RACE_DONE, 0x2001, 0);
	if (!mine)
		return;
	touch(payload + next(r) % 64, 8, seen ? RS_RACE_READ : RS_RACE_WRITE, 0x2100 + b);
	touch(payload, 4, RS_RACE_WRITE, 0x2200 + b);
	rs_race_access(self, state, 8, RS_RACE_WRITE, 0x2002, 0); /* a plain store, as a release store is */
	__atomic_store_n(&box[b].full, seen ? 0 : 2, __ATOMIC_RELEASE);
}

/* Two threads hand over by flags that nobody has used before: one raises it by an exchange, or by a store and a fence that is told after it was made; the other waits by plain loads, of
 * which one may be looked at just when the flag proves to be an atomic. */
static void hand_over(void)
{
	for (unsigned i = 0; i < FLAGS; i++) {
		uint32_t *flag = &flags[me / 2 % (THREADS / 2)][me / THREADS % ROUNDS][i][0];
		uintptr_t at = (uintptr_t)flag, payload = 0x800000000ull + at % 0x10000000;
		if (me % 2 == 0) {
			touch(payload, 4, RS_RACE_WRITE, 0x6000);
			if (i % 2) {
				rs_race_access(self, at, 4, RS_RACE_READ | RS_RACE_WRITE | RS_RACE_ATOMIC, 0x6001, 0);
				__atomic_exchange_n(flag, 1, __ATOMIC_SEQ_CST);
				rs_race_access(self, at, 4, RS_RACE_ATOMIC | RS_RACE_DONE, 0x6001, 0);
			} else {
				/* A handler that comes before the fence is told takes its store from it; so it is told with the store, as recipes do. (It failed so once on a busy machine.) */
				touch(at, 4, running ? RS_RACE_WRITE | RS_RACE_FENCED : RS_RACE_WRITE, 0x6002);
				__atomic_store_n(flag, 1, __ATOMIC_RELEASE);
				touch(0, 0, RS_RACE_FENCE, 0x6003);
			}
			continue;
		}
		for (uint32_t seen = 0; !seen; sched_yield()) {
			seen = __atomic_load_n(flag, __ATOMIC_ACQUIRE);
			touch(at, 4, RS_RACE_READ, 0x6100);
		}
		touch(payload, 4, RS_RACE_WRITE, 0x6101);
	}
}

static void *worker(void *arg)
{
	uint64_t r = (uintptr_t)arg * 0x9e3779b97f4a7c15ull | 1;
	me = (uint32_t)(uintptr_t)arg;
	EVENT(me, THREAD_START, thread_start, me, me, 0, 0x400000000ull + me % 64 * 0x100000, 0x400000000ull + me % 64 * 0x100000 + 0x10000);
	self = rs_race_thread(me);
	if (me % THREADS < 2)
		rs_race_access(self, 0x600000000ull + me / THREADS * 64, 4, RS_RACE_READ | RS_RACE_WRITE, 0x700000 + me, 0);
	if (me / THREADS <= ROUNDS)
		hand_over();
	for (uint64_t i = 0; i < iterations; i++) {
		switch (next(&r) % 8) {
		case 0: case 1: case 2: under_lock(&r); break;
		case 3: mailbox(&r); break;
		case 4: locked(&counters[next(&r) % 3], 1, 0x3000); break;
		case 5: touch(0x500000000ull + next(&r) % 4096, 8, RS_RACE_READ, 0x4000); break;
		default: touch(0x400000000ull + me % 64 * 0x100000 + next(&r) % 8000, 4, 1 + (unsigned)(next(&r) % 3), 0x5000); break;
		}
	}
	struct rs_race_thread *t = self;
	self = NULL;
	(void)t;
	EVENT(me, THREAD_EXIT, thread_exit, 0);
	return NULL;
}

static void *pest(void *arg)
{
	(void)arg;
	for (unsigned i = 0; running; i++) {
		if (handles[i % THREADS])
			pthread_kill(handles[i % THREADS], SIG);
		usleep(50);
	}
	return NULL;
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

enum { BENCH = 4000000 };
static int kind_of_bench, bench_threads;
static pthread_barrier_t start;
static double took[2]; /* CPU time */

static void *bencher(void *arg)
{
	me = (uint32_t)(uintptr_t)arg;
	EVENT(me, THREAD_START, thread_start, me, me, 0, 0, 0);
	self = rs_race_thread(me);
	pthread_barrier_wait(&start);
	double from = now();
	for (unsigned i = 0; i < BENCH; i++) {
		switch (kind_of_bench) {
		case 0: touch(0x400000000ull + me * 0x1000000ull + i % 256 * 8, 8, RS_RACE_WRITE, 0x100); break;                      /* private, the same epoch */
		case 1: touch(0x400000000ull + me * 0x1000000ull + i % 8192 * 8, 8, RS_RACE_WRITE, 0x100); break;                     /* private, more than the thread remembers */
		case 2: touch(0x500000000ull + i % 256 * 8, 8, RS_RACE_READ, 0x101); break;                                             /* shared, read */
		case 3:                                                                                                                  /* under a lock, by turns */
			if (i % 32 == 0) {
				pthread_mutex_lock(&lock[0]);
				EVENT(me, ACQUIRE, acquire, 0x10000, RS_OBJECT_MUTEX, 0, 0, 0);
			}
			touch(0x600000000ull + i % 16 * 8, 8, RS_RACE_WRITE, 0x102);
			if (i % 32 == 31) {
				EVENT(me, RELEASE, release, 0x10000, RS_OBJECT_MUTEX, 0, 0);
				pthread_mutex_unlock(&lock[0]);
			}
			break;
		case 4: /* one access an epoch: every one is looked at */
			EVENT(me, RELEASE, release, 0x20000 + me * 64, RS_OBJECT_MUTEX, 0, 0);
			touch(0x400000000ull + me * 0x1000000ull + i % 64 * 8, 8, RS_RACE_WRITE, 0x103);
			break;
		}
	}
	took[me % 2] = (now() - from) / BENCH;
	return NULL;
}

static int bench(void)
{
	static const char *names[] = {"private", "private-large", "shared-read", "locked", "release+access"};
	pthread_t t[8];
	uint32_t number = 2;
	for (kind_of_bench = 0; kind_of_bench < 5; kind_of_bench++)
		for (bench_threads = 1; bench_threads <= 2; bench_threads++) {
			pthread_barrier_init(&start, NULL, (unsigned)bench_threads + 1);
			for (int i = 0; i < bench_threads; i++) {
				EVENT(1, THREAD_CREATE, thread_create, number, 0, 0, 0);
				pthread_create(&t[i], NULL, bencher, (void *)(uintptr_t)number++);
			}
			pthread_barrier_wait(&start);
			for (int i = 0; i < bench_threads; i++)
				pthread_join(t[i], NULL);
			printf("%s threads=%d %.1f ns\n", names[kind_of_bench], bench_threads, bench_threads == 1 ? took[(number - 1) % 2] : (took[0] + took[1]) / 2);
		}
	return 0;
}

static uint32_t number = THREADS;

static void run(unsigned rounds)
{
	for (unsigned round = 0; round < rounds; round++) {
		uint32_t first = number;
		for (unsigned i = 0; i < THREADS; i++) {
			EVENT(1, THREAD_CREATE, thread_create, number, 0, 0, 0);
			pthread_create(&handles[i], NULL, worker, (void *)(uintptr_t)number++);
		}
		for (unsigned i = 0; i < THREADS; i++) {
			pthread_t h = handles[i];
			if (running) {
				__atomic_store_n(&handles[i], 0, __ATOMIC_SEQ_CST);
				usleep(200); /* the pest has let go of it */
			}
			pthread_join(h, NULL);
			EVENT(1, THREAD_JOIN, thread_join, first + i, 0, 0, 0);
		}
	}
}

int main(int argc, char **argv)
{
	struct rs_race_config config = {.max_pages = argc > 3 ? (uint32_t)atoi(argv[3]) : 0};
	struct rs_race_found f;
	struct rs_race_counts counts;
	unsigned rounds = argc > 2 ? (unsigned)atoi(argv[2]) : 10, found = 0, wrong = 0;
	pthread_t p;
	rs_race_begin(&config);
	me = 1;
	EVENT(1, THREAD_START, thread_start, 1, 1, 0, 0, 0);
	self = rs_race_thread(1);
	for (unsigned i = 0; i < LOCKS; i++)
		pthread_mutex_init(&lock[i], NULL);
	for (uintptr_t a = 0; a < 5000; a += 8)
		touch(0x500000000ull + a, 8, RS_RACE_WRITE, 0x4001);
	if (argc > 1 && strcmp(argv[1], "bench") == 0)
		return bench();
	self = NULL;
	signal(SIG, on_signal);
	running = argc > 1 && strcmp(argv[1], "signals") == 0;
	iterations = 20000;
	if (running)
		pthread_create(&p, NULL, pest, NULL);
	run(rounds);
	running = 0;
	if (argc > 1 && strcmp(argv[1], "fork") == 0) {
		fflush(stdout);
		pid_t pid = fork();
		if (pid == 0) { /* knows nothing of the parent's accesses, and is whole */
			rs_race_after_fork(1);
			run(rounds);
			goto told;
		}
		int status = 1;
		waitpid(pid, &status, 0);
		if (status)
			return 2;
	}
told:
	rs_race_end();
	while (rs_race_next(&f)) {
		if (f.pc >= 0x700000 && f.pc2 >= 0x700000)
			found++;
		else {
			wrong++;
			printf("wrong: %u %u %u T%u %lx+%lu pc %lx, T%u %lx+%lu pc %lx\n", f.rule, f.kind, f.kind2, f.by, f.addr, f.size, f.pc, f.by2, f.addr2, f.size2, f.pc2);
		}
	}
	rs_race_count(&counts);
	printf("rounds %u found %u wrong %u amnesties %lu unsaid %lu evicted %lu\n", rounds, found, wrong, counts.amnesties, counts.unsaid, counts.evicted_pages);
	return wrong != 0;
}
