// Built with -fsanitize=thread: atomics order as the program says and not as the processor does, and what is no atomic is none, whatever instruction accesses it.
#include "../run.h"
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#ifdef __SANITIZE_THREAD__
#define SAYS ;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SAYS ;
#endif
#endif
#ifndef SAYS // nobody is there to listen
#define SAYS {}
#pragma GCC diagnostic ignored "-Wunused-parameter"
#endif
void AnnotateHappensBefore(const char *file, int line, const volatile void *p) SAYS
void AnnotateHappensAfter(const char *file, int line, const volatile void *p) SAYS
void AnnotateBenignRaceSized(const char *file, int line, const volatile void *p, long n, const char *why) SAYS
void AnnotateIgnoreReadsBegin(const char *file, int line) SAYS
void AnnotateIgnoreReadsEnd(const char *file, int line) SAYS
void AnnotateIgnoreSyncBegin(const char *file, int line) SAYS
void AnnotateIgnoreSyncEnd(const char *file, int line) SAYS

static void until(_Atomic int *p, memory_order o)
{
	while (!atomic_load_explicit(p, o))
		sched_yield();
}

// NAME hands over by a store and a load of these orders, a fence before the one and behind the other (relaxed: none).
#define HANDS_OVER(name, store, load, before, behind) \
	static _Atomic int name##_flag; \
	long name; \
	static void *name##_gives(void *p) { name = 1; atomic_thread_fence(before); atomic_store_explicit(&name##_flag, 1, store); return p; } \
	static void *name##_takes(void *p) { until(&name##_flag, load); atomic_thread_fence(behind); use(name); return p; }
#define NONE memory_order_relaxed
#define ACQ memory_order_acquire
#define REL memory_order_release
#define SEQ memory_order_seq_cst
HANDS_OVER(right, REL, ACQ, NONE, NONE)
HANDS_OVER(strongest, SEQ, SEQ, NONE, NONE)
HANDS_OVER(consumed, REL, memory_order_consume, NONE, NONE)
HANDS_OVER(fenced, NONE, NONE, REL, ACQ)
HANDS_OVER(fenced_twice, NONE, NONE, SEQ, SEQ)
HANDS_OVER(fence_gives, NONE, ACQ, REL, NONE)
HANDS_OVER(fence_takes, REL, NONE, NONE, ACQ)
HANDS_OVER(relaxed, NONE, NONE, NONE, NONE) // race relaxed
HANDS_OVER(relaxed_store, NONE, ACQ, NONE, NONE) // race relaxed_store
HANDS_OVER(relaxed_load, REL, NONE, NONE, NONE) // race relaxed_load
HANDS_OVER(wrong_fence, NONE, ACQ, ACQ, NONE) // race wrong_fence
HANDS_OVER(no_second_fence, NONE, NONE, REL, NONE) // race no_second_fence

// What comes behind a fence that releases is not released by it.
static _Atomic int behind_flag;
long behind;
static void *behind_gives(void *p)
{
	atomic_thread_fence(memory_order_release);
	behind = 1; // race behind_the_fence
	atomic_store_explicit(&behind_flag, 1, memory_order_relaxed);
	return p;
}
static void *behind_takes(void *p)
{
	until(&behind_flag, memory_order_acquire);
	use(behind); // race behind_the_fence
	return p;
}

// A lock of a compare-and-swap, and one that forgets to acquire.
static _Atomic int lock, loose;
long held, held_loosely;
static void *locks(void *p)
{
	for (int i = 0, free = 0; i < 20; i++, free = 0) {
		while (!atomic_compare_exchange_weak_explicit(&lock, &free, 1, memory_order_acquire, memory_order_relaxed))
			free = 0, sched_yield();
		held++;
		atomic_store_explicit(&lock, 0, memory_order_release);
	}
	return p;
}
static void *locks_loosely(void *p)
{
	int free = 0;
	while (!atomic_compare_exchange_strong_explicit(&loose, &free, 1, memory_order_relaxed, memory_order_relaxed))
		free = 0, sched_yield();
	held_loosely++; // race loose_lock
	atomic_store_explicit(&loose, 0, memory_order_release);
	return p;
}

// Every operation and size once, in a chain of two threads.
#define CHAIN(type, name) \
	static _Atomic type name; \
	long name##_data; \
	static void *name##_first(void *p) \
	{ \
		name##_data = 1; \
		atomic_fetch_add_explicit(&name, 1, REL); \
		return p; \
	} \
	static void *name##_second(void *p) \
	{ \
		while (!atomic_load_explicit(&name, NONE)) \
			sched_yield(); \
		atomic_fetch_or_explicit(&name, 2, ACQ); \
		use(name##_data); \
		type was = atomic_exchange(&name, 12); \
		was += atomic_fetch_and(&name, 8) + atomic_fetch_xor(&name, 1) + atomic_fetch_sub(&name, 3) + __atomic_fetch_nand((type *)&name, 5, SEQ); \
		printf("%d %d\n", (int)was, (int)(signed char)name); \
		return p; \
	}
CHAIN(char, of1)
CHAIN(short, of2)
CHAIN(int, of4)
CHAIN(long, of8)
CHAIN(__int128, of16)

// A counter is none, and beside it nothing is ordered.
static _Atomic long counter;
long beside;
static void *counts(void *p)
{
	atomic_fetch_add_explicit(&counter, 1, memory_order_relaxed);
	beside++; // race beside
	return p;
}

// A plain access to an atomic is a race, of any instruction.
static _Atomic int mixed;
static void *adds(void *p)
{
	atomic_fetch_add(&mixed, 1); // race mixed
	return p;
}
static void *peeks(void *p)
{
	use(*(int *)&mixed); // race mixed
	return p;
}

// volatile is no order.
volatile int done;
long result;
static void *finishes(void *p)
{
	result = 1; // race result
	done = 1; // race done
	return p;
}
static void *waits(void *p)
{
	while (!done) // race done
		sched_yield();
	use(result); // race result
	return p;
}

// What annotations say is so.
static bool flag;
long annotated;
static void *announces(void *p)
{
	annotated = 1;
	AnnotateHappensBefore(__FILE__, __LINE__, &flag);
	unseen_done();
	return p;
}
static void *is_told(void *p)
{
	unseen_wait();
	AnnotateHappensAfter(__FILE__, __LINE__, &flag);
	use(annotated);
	return p;
}
long benign, ignored;
static void *writes_both(void *p)
{
	benign++;
	ignored++;
	return p;
}
static void *reads_both(void *p)
{
	benign++;
	AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
	use(ignored);
	AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
	AnnotateIgnoreSyncBegin(__FILE__, __LINE__); // a program that says so was refused
	AnnotateIgnoreSyncEnd(__FILE__, __LINE__);
	return p;
}

int main(void)
{
#define BOTH(name) both(name##_gives, name##_takes)
	BOTH(right), BOTH(strongest), BOTH(consumed), BOTH(fenced), BOTH(fenced_twice), BOTH(fence_gives), BOTH(fence_takes);
	BOTH(relaxed), BOTH(relaxed_store), BOTH(relaxed_load), BOTH(wrong_fence), BOTH(no_second_fence), BOTH(behind);
	both(locks, locks);
	both(locks_loosely, locks_loosely);
	both(of1_first, of1_second), both(of2_first, of2_second), both(of4_first, of4_second), both(of8_first, of8_second), both(of16_first, of16_second);
	both(counts, counts);
	both(adds, peeks);
	both(finishes, waits);
	unseen(announces, is_told);
	AnnotateBenignRaceSized(__FILE__, __LINE__, &benign, sizeof benign, "a test");
	both(writes_both, reads_both);
	return 0;
}
