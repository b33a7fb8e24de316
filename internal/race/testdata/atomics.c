// Locks, flags and counters made of atomics, as C11 compiles them; and races that atomics do not help against. Stores with release order are plain movs:
// what rests on them alone could be either, and is told as such.
#include "run.h"
#include <sched.h>
#include <stdatomic.h>

static atomic_int lock, count, flag, released, ticket, serving, gate, wide[4], go;
static atomic_long gauge;
static atomic_flag tas = ATOMIC_FLAG_INIT;
static _Atomic(long *) list;
long a, b, c[3], d, f, g, h, k, plain_release[3];
static int mixed;
int with_mfence;

static void *spins(void *arg) // unlock is a mov
{
	int free = 0;
	while (!atomic_compare_exchange_weak_explicit(&lock, &free, 1, memory_order_acquire, memory_order_relaxed))
		free = 0, sched_yield();
	a++;
	atomic_store_explicit(&lock, 0, memory_order_release);
	return arg;
}

static void *test_and_set(void *arg)
{
	while (atomic_flag_test_and_set(&tas))
		sched_yield();
	b++;
	atomic_flag_clear(&tas);
	return arg;
}

static void *raises(void *arg) // xchg
{
	c[0] = c[1] = c[2] = 1;
	atomic_store(&flag, 1);
	return arg;
}

static void *sees(void *arg)
{
	while (!atomic_load(&flag))
		sched_yield();
	c[0] = c[1] = c[2] = 2;
	return arg;
}

static void *takes_ticket(void *arg)
{
	int mine = atomic_fetch_add(&ticket, 1);
	while (atomic_load_explicit(&serving, memory_order_acquire) != mine)
		sched_yield();
	d++;
	atomic_fetch_add(&serving, 1);
	return arg;
}

static void *releases(void *arg) // mov
{
	plain_release[0] = plain_release[1] = plain_release[2] = 1; // race-mov payload
	atomic_store_explicit(&released, 1, memory_order_release); // race-mov release_store
	return arg;
}

static void *acquires(void *arg)
{
	while (!atomic_load_explicit(&released, memory_order_acquire)) // race-mov release_store
		sched_yield();
	plain_release[0] = plain_release[1] = plain_release[2] = 2; // race-mov payload
	return arg;
}

static void *counts(void *arg)
{
	atomic_fetch_add_explicit(&count, 1, memory_order_relaxed);
	f++; // race beside_a_counter
	return arg;
}

static void *counts_not(void *arg)
{
	atomic_fetch_add_explicit(&wide[arg != 0], 1, memory_order_relaxed);
	f++; // race beside_a_counter
	return arg;
}

static void *locked(void *arg)
{
	__atomic_fetch_add(&mixed, 1, __ATOMIC_SEQ_CST); // race add_without_lock
	return arg;
}

static void *unlocked(void *arg)
{
	mixed++; // race add_without_lock
	return arg;
}

static void *stores_and_fences(void *arg)
{
	g++;
	*(volatile int *)&with_mfence = 1;
	__asm__ volatile("mfence" : : : "memory");
	return arg;
}

static void *waits_for_fenced(void *arg)
{
	while (!*(volatile int *)&with_mfence)
		sched_yield();
	g++;
	return arg;
}

static void *pushes(void *arg)
{
	long *node = malloc(2 * sizeof *node);
	long *head = atomic_load(&list);
	node[1] = 1;
	do
		node[0] = (long)head;
	while (!atomic_compare_exchange_weak(&list, &head, node));
	return arg;
}

static void *walks(void *arg)
{
	for (long *n = atomic_load(&list); n; n = (long *)n[0])
		use(n[1]);
	return arg;
}

// An increment that is no mov, then a mov to the same bytes, which releases: the increment must not stand for it in what a thread told.
static void *adds_then_releases(void *arg)
{
	__asm__ volatile("addq $1, %0" : "+m"(gauge) : : "cc");
	atomic_store(&go, 1);
	k = 1;
	atomic_store_explicit(&gauge, 7, memory_order_release);
	return arg;
}

static void *goes(void *arg)
{
	while (!atomic_load(&go))
		sched_yield();
	while (atomic_load_explicit(&gauge, memory_order_acquire) != 7)
		sched_yield();
	k = 2;
	return arg;
}

static void *does_not_look(void *arg)
{
	atomic_store(&gate, 1);
	h++; // race after_the_store
	return arg;
}

static void *looks(void *arg)
{
	while (!atomic_load(&gate))
		sched_yield();
	h++; // race after_the_store
	return arg;
}

// The write behind a release is another one than that before it.
static atomic_int told, told_by_mov;
long twice, twice_by_mov;
static void *writes_twice(void *arg)
{
	twice++;
	atomic_fetch_add(&told, 1);
	twice++; // race written_twice
	return arg;
}

static void *writes_when_told(void *arg)
{
	while (!atomic_load(&told))
		sched_yield();
	twice++; // race written_twice
	return arg;
}

static void *writes_twice_by_mov(void *arg)
{
	twice_by_mov++;
	atomic_store_explicit(&told_by_mov, 2, memory_order_release);
	twice_by_mov++; // race written_twice_by_mov
	return arg;
}

static void *writes_when_told_by_mov(void *arg)
{
	while (atomic_load(&told_by_mov) != 2)
		sched_yield();
	twice_by_mov++; // race written_twice_by_mov
	return arg;
}

int main(void)
{
	both(spins, spins);
	both(test_and_set, test_and_set);
	both(raises, sees);
	both(takes_ticket, takes_ticket);
	both(releases, acquires);
	both(counts, counts_not);
	both(locked, unlocked);
	both(stores_and_fences, waits_for_fenced);
	both(pushes, pushes);
	both(pushes, walks);
	both(adds_then_releases, goes);
	atomic_fetch_add(&gauge, 1);
	both(does_not_look, looks);
	both(writes_twice, writes_when_told);
	atomic_fetch_add(&told_by_mov, 1);
	both(writes_twice_by_mov, writes_when_told_by_mov);
	return 0;
}
