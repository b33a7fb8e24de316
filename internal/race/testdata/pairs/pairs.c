// Reads before a write of the same bytes, which are put off until then (internal/access, pairs.go). With ORDER what the first reads acquire orders what comes before the write: no race. Without it each pair races by what its case says.
#include "../run.h"
#include <setjmp.h>
#include <signal.h>

// takes reads a pointer, what it points to, and stores another pointer, with nothing in between.
#define TAKE(slot, to, value) __asm__ volatile("mov (%2), %0\n\tmov (%0), %1\n\tmov %3, (%2)" : "=&r"(to), "=&r"(value) : "r"(slot), "r"(&none) : "memory")
#define ADD(at) do { long x_; __asm__ volatile("mov (%1), %0\n\tinc %0\n\tmov %0, (%1)" : "=&r"(x_) : "r"(at) : "memory"); } while (0)
#define STORE(at, v) __asm__ volatile("mov %1, (%0)" : : "r"(at), "r"(v) : "memory")
#define LOAD(at, v) __asm__ volatile("mov (%1), %0" : "=&r"(v) : "r"(at) : "memory")

enum { ITEMS = 20000 };
static long none, item[8];
static long *slot = &none;

static void *taker(void *arg)
{
	long sum = 0;
	for (int n = 0; n < ITEMS; n++) {
		long *p, v;
		TAKE(&slot, p, v); // what it acquires orders the read of the item
		sum += p == &none ? 0 : v;
		if (n % 16 == 0)
			sched_yield();
	}
	return arg ? arg : (void *)sum;
}

static void *giver(void *arg)
{
	for (int n = 0; n < ITEMS; n++) {
		long *p;
		LOAD(&slot, p);
		if (p == &none) {
			item[n % 8]++;
			STORE(&slot, &item[n % 8]);
		} else if (n % 16 == 0)
			sched_yield();
	}
	return arg;
}

static long both_ways, left, seen;
static sigjmp_buf out;
static void leave(int sig) { siglongjmp(out, sig); }

static void *adds(void *arg)
{
	ADD(&both_ways); // race-mov both
	unseen_done();
	return arg;
}
static void *stores(void *arg)
{
	unseen_wait();
	STORE(&both_ways, 5l); // race-mov both
	return arg;
}

// It comes to no write: what is read in between is nowhere.
static void *faults(void *arg)
{
	if (sigsetjmp(out, 1) == 0) {
		long x, y;
		__asm__ volatile("mov (%2), %0\n\tmov (%3), %1\n\tmov %0, (%2)" : "=&r"(x), "=&r"(y) : "r"(&left), "r"(8l) : "memory"); // race-mov left
	}
	unseen_done();
	return arg;
}
static void *writes(void *arg)
{
	unseen_wait();
	STORE(&left, 1l); // race-mov left
	return arg;
}

static void *reads(void *arg)
{
	LOAD(&seen, left); // race-mov seen
	unseen_done();
	return arg;
}
static void *adds_then(void *arg)
{
	unseen_wait();
	ADD(&seen); // race-mov seen
	return arg;
}

int main(void)
{
#ifdef ORDER
	__asm__ volatile("lock orq $0, %0" : "+m"(slot)); // it is an atomic
	both(taker, giver);
	return 0;
#endif
	signal(SIGSEGV, leave);
	unseen(adds, stores);
	unseen(faults, writes);
	unseen(reads, adds_then);
	return 0;
}
