// Locks and conditions that the program makes itself of words and futexes, as Rust's standard library does (0, 1, 2 if somebody may wait), in line; `sum` depends on the order. And what looks like such locks and is none.
// Its arguments: locks, conditions or alike; how many rounds.
#include <linux/futex.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define COLD __attribute__((noinline, cold))
#define IN_LINE static inline __attribute__((always_inline))
typedef unsigned word;
enum { THREADS = 6, ROOM = 8, WORDS = 64 };

IN_LINE _Bool cas(word *w, word from, word to) { return __atomic_compare_exchange_n(w, &from, to, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED); }
IN_LINE word swap(word *w, word to) { return __atomic_exchange_n(w, to, __ATOMIC_ACQ_REL); }
IN_LINE void wait_for(word *w, word v) { syscall(SYS_futex, w, FUTEX_WAIT_PRIVATE, v, NULL); }
IN_LINE void wake(word *w, int n) { syscall(SYS_futex, w, FUTEX_WAKE_PRIVATE, n); }

static COLD void contended(word *w)
{
	word v = 0;
	for (int i = 0; i < 100 && (v = __atomic_load_n(w, __ATOMIC_RELAXED)) == 1; i++)
		__builtin_ia32_pause();
	if (v == 0 && cas(w, 0, 1))
		return;
	while (swap(w, 2) != 0)
		wait_for(w, 2);
}
static COLD void wake_one(word *w) { wake(w, 1); }
IN_LINE void lock(word *w)
{
	if (!cas(w, 0, 1))
		contended(w);
}
IN_LINE void unlock(word *w)
{
	if (swap(w, 0) == 2)
		wake_one(w);
}

static word often, at, more, less, made;
static uint64_t sum, values[WORDS], queue[ROOM], head, length, taken, all;
static long rounds, slow;

static void *locks(void *arg)
{
	uint64_t me = (uint64_t)(uintptr_t)arg;
	for (long i = 0; i < rounds; i++) {
		lock(&often);
		sum = sum * 6364136223846793005u + me;
		values[sum % WORDS] = sum;
		taken++;
		unlock(&often);
	}
	return NULL;
}

/* A condition is a count of its signals. */
IN_LINE void wait(word *count)
{
	word v = __atomic_load_n(count, __ATOMIC_RELAXED);
	unlock(&at);
	wait_for(count, v);
	lock(&at);
}
IN_LINE void give(word *count, int n)
{
	__atomic_fetch_add(count, 1, __ATOMIC_RELAXED);
	wake(count, n);
}

static void *puts_in(void *arg)
{
	for (long i = 0; i < rounds; i++) {
		lock(&at);
		while (length == ROOM)
			wait(&less);
		queue[(head + length++) % ROOM] = (uint64_t)i * THREADS + (uint64_t)(uintptr_t)arg;
		unlock(&at);
		give(&more, 1);
	}
	return NULL;
}

static void *takes_out(void *arg)
{
	(void)arg;
	for (_Bool over = 0; !over;) {
		lock(&at);
		while (length == 0 && taken < all)
			wait(&more);
		if (length) {
			sum = sum * 31 + queue[head++ % ROOM];
			length--;
			taken++;
		}
		over = taken >= all;
		unlock(&at);
		give(&less, 1);
		if (over)
			give(&more, 1000);
	}
	return NULL;
}

/* 1: somebody makes it; 2: it is made. Who takes this for a lock writes 2, and nobody makes it. */
static COLD void wait_made(word *w)
{
	while (__atomic_load_n(w, __ATOMIC_ACQUIRE) != 2)
		wait_for(w, 1);
}
static COLD void make_again(word *w) { swap(w, 2); }
/* Counts how often somebody had to wait: who waits in its stead would not. */
static COLD void counted(word *w)
{
	while (swap(w, 2) != 0) {
		__atomic_fetch_add(&slow, 1, __ATOMIC_RELAXED);
		wait_for(w, 2);
	}
}
static word beside;
static long failed;
static void *alike(void *arg)
{
	uint64_t me = (uint64_t)(uintptr_t)arg;
	for (long i = 0; i < rounds; i++) {
		word *once = &((word *)values)[i % (2 * WORDS)];
		if (cas(once, 0, 1)) {
			__atomic_fetch_add(&taken, 1, __ATOMIC_RELAXED);
			make_again(once);
			wake(once, 1000);
		} else
			wait_made(once);
		if (!cas(&beside, 0, 1))
			counted(&beside);
		sum++;
		all += me;
		if (swap(&beside, 0) == 2) {
			__atomic_fetch_add(&failed, 1, __ATOMIC_RELAXED);
			wake(&beside, 1);
		}
	}
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc < 3)
		return 1;
	rounds = atol(argv[2]);
	_Bool is_alike = !strcmp(argv[1], "alike"), conditions = !strcmp(argv[1], "conditions");
	if (conditions)
		all = (uint64_t)rounds * THREADS / 2;
	if (is_alike)
		beside = 1; /* somebody has to wait */
	pthread_t t[THREADS];
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&t[i], NULL, is_alike ? alike : !conditions ? locks : i % 2 ? takes_out : puts_in, (void *)(uintptr_t)(i + 1)) != 0)
			return 1;
	if (is_alike) {
		while (!__atomic_load_n(&slow, __ATOMIC_RELAXED))
			usleep(1000);
		if (swap(&beside, 0) != 2)
			return 2;
		wake(&beside, 1);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	lock(&made);
	printf("%s: %llu taken\n", argv[1], (unsigned long long)taken);
	if (is_alike)
		printf("%llu in all, %llu, %s\n", (unsigned long long)sum, (unsigned long long)all, slow ? "waited" : "never waited");
	unlock(&made);
	return 5;
}
