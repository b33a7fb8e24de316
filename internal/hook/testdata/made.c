// Locks made of a word and futexes, and what looks like them and is none. A function's name says what is to be found in it: takes_, gives_, both_ or none_.
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#define COLD __attribute__((noinline, cold))
#define KEEP __attribute__((noinline, used))
typedef unsigned word;
struct thing { long a; word lock; long b; };
extern long count;
long count;
word global;

static inline __attribute__((always_inline)) _Bool cas(word *w, word from, word to) { return __atomic_compare_exchange_n(w, &from, to, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED); }
static inline __attribute__((always_inline)) word swap(word *w, word to) { return __atomic_exchange_n(w, to, __ATOMIC_ACQ_REL); }
static inline __attribute__((always_inline)) void wait_for(word *w, word v) { syscall(SYS_futex, w, FUTEX_WAIT_PRIVATE, v, 0); }
static inline __attribute__((always_inline)) void wake(word *w, int n) { syscall(SYS_futex, w, FUTEX_WAKE_PRIVATE, n); }

// As Rust's: a moment on loads, then 2 until it was 0.
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
static inline __attribute__((always_inline)) void lock(word *w)
{
	if (__builtin_expect(!cas(w, 0, 1), 0))
		contended(w);
}
static inline __attribute__((always_inline)) void unlock(word *w)
{
	if (__builtin_expect(swap(w, 0) == 2, 0))
		wake_one(w);
}

KEEP void both_plain(word *w) { lock(w); count++; unlock(w); }
KEEP void both_field(struct thing *t) { lock(&t->lock); t->a++; unlock(&t->lock); }
KEEP void both_global(long n) { lock(&global); count += n; unlock(&global); }
KEEP void takes_alone(struct thing *t) { lock(&t->lock); }
KEEP void gives_alone(struct thing *t) { unlock(&t->lock); }
KEEP long gives_result(struct thing *t) { long r = t->b; unlock(&t->lock); return r; }
KEEP void gives_in_line(word *w) { if (__builtin_expect(swap(w, 0) == 2, 0)) wake(w, 1); count++; }

// A try.
KEEP _Bool none_try(word *w) { return cas(w, 0, 1); }
// What is made once: 2 says that it is made.
static COLD void once_slow(word *w)
{
	while (swap(w, 2) != 2)
		wait_for(w, 2);
}
KEEP void none_once(word *w) { if (!cas(w, 0, 1)) once_slow(w); count++; }
// It may come back without the lock.
static COLD void surrenders(word *w)
{
	for (int i = 0; i < 5; i++) {
		if (swap(w, 2) == 0)
			return;
		wait_for(w, 2);
	}
}
KEEP void none_gives_up(word *w) { if (!cas(w, 0, 1)) surrenders(w); count++; }
// It counts how often it waits.
static COLD void counts(word *w)
{
	while (swap(w, 2) != 0) {
		count++;
		wait_for(w, 2);
	}
}
KEEP void none_counts(word *w) { if (!cas(w, 0, 1)) counts(w); count++; }
KEEP void none_counts_itself(word *w) { if (!cas(w, 0, 1)) { count++; contended(w); } __atomic_thread_fence(__ATOMIC_SEQ_CST); }
// It says whether it waited.
KEEP int none_tells(word *w) { int waited = 0; if (!cas(w, 0, 1)) { contended(w); waited = 1; } __atomic_thread_fence(__ATOMIC_SEQ_CST); return waited; }
KEEP void none_chooses(word *w, long *a, long *b) { long *x = a; if (!cas(w, 0, 1)) { contended(w); x = b; } __atomic_thread_fence(__ATOMIC_SEQ_CST); ++*x; }
KEEP long none_notes(word *w, long a, long b) { volatile long x = a; if (!cas(w, 0, 1)) { contended(w); x = b; } __atomic_thread_fence(__ATOMIC_SEQ_CST); return x; }
KEEP void none_chooses_first(word *w, long *a, long *b) { long *x = a; if (!cas(w, 0, 1)) { x = b; contended(w); } __atomic_thread_fence(__ATOMIC_SEQ_CST); ++*x; }
KEEP long *none_wakes_and_chooses(word *w, long *a, long *b) { long *x = a; if (swap(w, 0) == 2) { x = b; wake_one(w); } __atomic_thread_fence(__ATOMIC_SEQ_CST); return x; }
// Its function does.
static COLD int whether(word *w)
{
	int waited = 0;
	for (; swap(w, 2) != 0; waited = 1)
		wait_for(w, 2);
	return waited;
}
KEEP int none_result(word *w) { return cas(w, 0, 1) ? 0 : whether(w); }
// Another word's.
KEEP void none_other(word *w, word *o) { if (!cas(w, 0, 1)) contended(o); count++; }
// It waits for another value, or for another protocol's.
static COLD void other_value(word *w)
{
	while (swap(w, 3) != 0)
		wait_for(w, 3);
}
KEEP void none_other_value(word *w) { if (!cas(w, 0, 1)) other_value(w); count++; }
static COLD void only_spins(word *w)
{
	while (swap(w, 2) != 0)
		__builtin_ia32_pause();
}
KEEP void none_spins(word *w) { if (!cas(w, 0, 1)) only_spins(w); count++; }
// It wakes all, another word's, or does more.
KEEP void none_all(word *w) { if (swap(w, 0) == 2) wake(w, 1000); }
KEEP void none_other_word(word *w, word *o) { if (swap(w, 0) == 2) wake(o, 1); }
KEEP void none_more(word *w) { if (swap(w, 0) == 2) { wake(w, 1); count++; } }
KEEP int none_says(word *w) { int woke = 0; if (swap(w, 0) == 2) { wake(w, 1); woke = 1; } __atomic_thread_fence(__ATOMIC_SEQ_CST); return woke; }
KEEP word none_returns(word *w) { word v = swap(w, 0); if (v == 2) wake(w, 1); __atomic_thread_fence(__ATOMIC_SEQ_CST); return v; }
// A flag that is 2 where somebody is to be told.
KEEP void none_flag(word *w) { if (swap(w, 0) == 2) count++; }

int main(void) { return 0; }
