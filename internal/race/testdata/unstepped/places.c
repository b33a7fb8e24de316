// Where shared memory can lie: in blocks of all kinds, in mappings, on stacks, in thread-local variables; each raced for, and each as it is handed on rightly, given again above all.
#include "../run.h"
#include <malloc.h>
#include <stdatomic.h>

enum { PAGE = 4096, HUGE = 1 << 22 };
#define MUST(x) do { if (!(x)) abort(); } while (0)

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void *locked(void *(*f)(void *))
{
	pthread_mutex_lock(&mutex);
	f(0);
	pthread_mutex_unlock(&mutex);
	return 0;
}

// Wrongly, and under a lock: a block on a boundary, a huge one, one that realloc has moved, an anonymous mapping, a shared one, that of a file, the heap's end.
static long *aligned, *huge, *moved, *mapped, *shared, *of_file, *brk_memory;
static void *adds_aligned(void *p) { aligned[1]++; /* race aligned */ return p; }
static void *adds_huge(void *p) { huge[HUGE / 8 - 1]++; /* race huge */ return p; }
static void *adds_moved(void *p) { moved[700]++; /* race moved */ return p; }
static void *adds_mapped(void *p) { mapped[PAGE / 8]++; /* race mapped */ return p; }
static void *adds_shared(void *p) { shared[1]++; /* race shared */ return p; }
static void *adds_of_file(void *p) { of_file[2]++; /* race of_file */ return p; }
static void *adds_brk(void *p) { brk_memory[3]++; /* race brk_memory */ return p; }

static void *all_locked(void *p)
{
	aligned[2]++, aligned[2]--;
	huge[1]++;
	moved[1]++;
	mapped[1]++;
	shared[2]++;
	of_file[3]++;
	brk_memory[4]++;
	return p;
}
static void *locks_all(void *p) { locked(all_locked); return p; }

// Wrongly: main's own stack, which main accesses itself, and that of a thread that waits.
static void *changes_mains(void *arg) { ++*(volatile long *)arg; /* race-mov own_stack */ return arg; }
static void mains_stack(void)
{
	volatile long local = 1;
	pthread_t t;
	pthread_create(&t, 0, changes_mains, (void *)&local);
	local++; // race-mov own_stack
	pthread_join(t, 0);
	MUST(local > 1);
}

static long *_Atomic lent;
static void *lends(void *p)
{
	volatile long local;
	atomic_store(&lent, (long *)&local);
	local = 1; // race-mov lent_stack
	while (atomic_load(&lent))
		sched_yield();
	return p;
}
static void *borrows(void *p)
{
	volatile long *l;
	while (!(l = atomic_load(&lent)))
		sched_yield();
	*l = 2; // race-mov lent_stack
	atomic_store(&lent, 0);
	return p;
}

// Wrongly: a thread's own variable, whose address another has; rightly: each its own.
static _Thread_local long own_counter;
static void *counts_own(void *p)
{
	for (int i = 0; i < 10; i++)
		own_counter++;
	return p;
}
static volatile long *_Atomic lent_counter;
static void *lends_counter(void *p)
{
	atomic_store(&lent_counter, &own_counter);
	*(volatile long *)&own_counter = 2; // race-mov thread_local
	while (atomic_load(&lent_counter))
		sched_yield();
	return p;
}
static void *borrows_counter(void *p)
{
	volatile long *l;
	while (!(l = atomic_load(&lent_counter)))
		sched_yield();
	*l = 3; // race-mov thread_local
	atomic_store(&lent_counter, 0);
	return p;
}

// Rightly: memory that is given again is another's, though nothing but the allocator or the kernel orders the two: a block, a mapping, a mapping made over another, pages that were given back, a stack.
static volatile long *mapped_at;
static void *has_block(void *p)
{
	volatile long *mine = malloc(1000 * sizeof *mine);
	mine[10] = 1;
	free((void *)mine);
	unseen_done();
	return p;
}
static void *has_block_next(void *p)
{
	unseen_wait();
	volatile long *mine = malloc(1000 * sizeof *mine);
	mine[10] = 1;
	free((void *)mine);
	return p;
}
static void *maps(void *p)
{
	volatile long *mine = mmap(0, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mine[10] = 1;
	mapped_at = mine; // race-mov address
	munmap((void *)mine, 16 * PAGE);
	unseen_done();
	return p;
}
static void *maps_again(void *p)
{
	unseen_wait();
	volatile long *mine = mmap((void *)mapped_at, 16 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); // race-mov address
	mine[10] = 1;
	munmap((void *)mine, 16 * PAGE);
	return p;
}
static void *frees_for_another(void *p) // remote, with the lock as the order
{
	static void *handed;
	pthread_mutex_lock(&mutex);
	void *was = handed;
	handed = p ? 0 : malloc(200);
	if (handed)
		memset(handed, 1, 200);
	pthread_mutex_unlock(&mutex);
	free(was);
	return p;
}

static void *recurses(void *p)
{
	volatile char frame[3000];
	memset((void *)frame, 1, sizeof frame);
	use(frame[5]);
	return p;
}
static void stacks_given_again(void)
{
	pthread_attr_t attr;
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	for (int i = 0; i < 30; i++) {
		pthread_t t;
		MUST(pthread_create(&t, &attr, i & 1 ? recurses : counts_own, 0) == 0);
		if (i % 3 == 0)
			sched_yield();
	}
}

int main(void)
{
	FILE *f = tmpfile();
	MUST(posix_memalign((void **)&aligned, 256, 64) == 0 && f && ftruncate(fileno(f), PAGE) == 0);
	memset(aligned, 0, 64);
	huge = calloc(1, HUGE);
	moved = realloc(calloc(1, 16), 8000);
	memset(moved, 0, 8000);
	mapped = mmap(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	shared = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	of_file = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(f), 0);
	brk_memory = sbrk(PAGE);
	MUST(mapped != MAP_FAILED && shared != MAP_FAILED && of_file != MAP_FAILED && (long)brk_memory != -1);
	both(adds_aligned, adds_aligned);
	both(adds_huge, adds_huge);
	both(adds_moved, adds_moved);
	both(adds_mapped, adds_mapped);
	both(adds_shared, adds_shared);
	both(adds_of_file, adds_of_file);
	both(adds_brk, adds_brk);
	both(locks_all, locks_all);
	mains_stack();
	both(lends, borrows);
	both(counts_own, counts_own);
	both(lends_counter, borrows_counter);
	unseen(has_block, has_block_next);
	unseen(maps, maps_again);
	both(frees_for_another, frees_for_another);
	stacks_given_again();
	free(aligned);
	free(huge);
	free(moved);
	fclose(f);
	return 0;
}
