/* sync.h: what the files of the synchronisation objects share (sync.c, object.c, mutex.c, rwlock.c, spin.c, cond.c, barrier.c,
 * sem.c, once.c, c11.c). Nobody else includes it.
 *
 * In a nutshell: a wrapper finds its thread (NULL: pass through), tries the real function that cannot block, announces `want` if that
 * failed, blocks in the real function, and keeps the thread's held list. Nothing here judges: misuse events are facts, each
 * checked against the object's own bytes *and* what we saw threads do.
 *
 * Signal handlers may run between any two instructions and use locks themselves. Whatever they take they give back before they
 * return, so that code here only has to bear that the words above the interrupted top of a list change.
 */
#ifndef RS_SYNC_H
#define RS_SYNC_H
#include "agent.h"
#include "guardsync.h"
#include "os.h"
#include <errno.h>

/* The real function. Looked up at the latest here: programs call locks from constructors that run before ours. */
#define REAL(f) (RS_LIKELY(rs_real.f != NULL) ? rs_real.f : (rs_real_init(), rs_real.f))

/* A second exported name of an interposed function. In assembler, because glibc's headers redirect or decorate some of them. */
#define RS_SAME(name, as) __asm__(".globl " #name "\n\t.type " #name ", @function\n\t.set " #name ", " #as)

/* Where the program called the interposed function; what rs_stack_from wants. Must be made in the interposed function itself. */
struct rs_site { uintptr_t pc; void *fp; };
#define RS_SITE ((struct rs_site){RS_CALLER(), __builtin_frame_address(0)})

static inline uint32_t rs_site_stack(struct rs_thread *t, struct rs_site at)
{
	return rs_config.stack_depth ? rs_stack_from(t, at.pc, at.fp, rs_config.stack_depth) : 0;
}

/* Keeps `guard` a log, it does all of it: */
#define RS_GUARDED(call) do { if (RS_UNLIKELY(rs_guard_on)) { \
	char *below_ = rs_guard_below; \
	if (below_) \
		RS_KEEP_BELOW(below_); \
	int guarded_ = (call); \
	if (below_) \
		RS_PUT_BELOW(below_); \
	if (guarded_ != RS_GUARD_PASS) { \
		RS_NO_REGISTERS(); \
		return guarded_; } } } while (0)
/* What functions that were called left below the stack pointer is not the same in a recording and in its re-execution, and later functions find it in variables that they do not set. So it is put back as it was: who
 * needed no such function, as most locks, leaves it alone. Not in a leaf. */
#define RS_KEEP_BELOW(to) do { \
	void *to_ = (to); \
	__asm__ volatile(RS_BELOW_("%%", RS_STRING(RS_GUARD_BELOW_BYTES), "%%rsi", "%%r10", "%%r11") "cld\n\trep movsq" : "+D"(to_) : : "rsi", "rcx", "r10", "r11", "memory", "cc"); } while (0)
#define RS_PUT_BELOW(from) do { \
	void *from_ = (from); \
	__asm__ volatile(RS_BELOW_("%%", RS_STRING(RS_GUARD_BELOW_BYTES), "%%rdi", "%%r10", "%%r11") "cld\n\trep movsq" : "+S"(from_) : : "rdi", "rcx", "r10", "r11", "memory", "cc"); } while (0)
/* Functions that have the program for their caller however they are reached: by a jump. Compilers must know nothing of their results, or they would rather call them. */
#if __has_attribute(musttail)
#define JUMP __attribute__((musttail)) return
#define APART __attribute__((noinline, used))
#else
#define JUMP return
#define APART __attribute__((noipa, used))
#endif
/* int name(type *object): RS_GUARDED of `int kept(type *object, uintptr_t sp)`, with the caller's rbp at sp - 16 as in a frame (guardwant.c), where nothing was pushed yet: who could do without, and jumps here or not, leaves the same below the stack pointer. Behind RS_GUARD_PASS `any(object)`. In
 * assembler, as a compiler would push what it likes before it keeps anything. */
#define RS_GUARD_SLOWLY(type, name, kept, any) \
	int name(type *object) __attribute__((visibility("hidden"))); \
	__asm__(".pushsection .text\n\t.p2align 4\n\t.type " #name ", @function\n\t.globl " #name "\n\t.hidden " #name "\n" #name ":\n\t.cfi_startproc\n\t" \
		"movq rs_guard_below@gottpoff(%rip), %rdx\n\tmovq %fs:(%rdx), %rdx\n\ttestq %rdx, %rdx\n\tje 1f\n\t" \
		"movq %rdi, %r8\n\tmovq %rdx, %rdi\n\t" RS_BELOW_("%", RS_STRING(RS_GUARD_BELOW_BYTES), "%rsi", "%r10", "%r11") "cld\n\trep movsq\n\tmovq %r8, %rdi\n" \
		"1:\tleaq 8(%rsp), %rsi\n\tpushq %rbp\n\t.cfi_adjust_cfa_offset 8\n\tpushq %rdx\n\t.cfi_adjust_cfa_offset 8\n\tpushq %rdi\n\t.cfi_adjust_cfa_offset 8\n\t" \
		"call " #kept "\n\tpopq %r8\n\t.cfi_adjust_cfa_offset -8\n\tpopq %rsi\n\t.cfi_adjust_cfa_offset -8\n\taddq $8, %rsp\n\t.cfi_adjust_cfa_offset -8\n\t" \
		"testq %rsi, %rsi\n\tje 2f\n\t" RS_BELOW_("%", RS_STRING(RS_GUARD_BELOW_BYTES), "%rdi", "%r10", "%r11") "cld\n\trep movsq\n" \
		"2:\tcmpl $-2, %eax\n\tje 3f\n\t" RS_NO_REGISTERS_("%") "ret\n3:\tmovq %r8, %rdi\n\tjmp " #any "\n\t.cfi_endproc\n\t.size " #name ", .-" #name "\n\t.popsection")
_Static_assert(RS_GUARD_PASS == -2, "RS_GUARD_SLOWLY");
/* Where there is no such room: zeros. */
#define RS_CLEAR_BELOW(bytes) do { \
	__asm__ volatile(RS_BELOW_("%%", "%c0", "%%rdi", "%%r10", "%%r11") "cld\n\trep stosq" : : "i"(bytes), "a"(0) : "rdi", "rcx", "r10", "r11", "memory", "cc"); } while (0)
#define RS_SITE_SP(at) ((uintptr_t)(at).fp + 16)

/* --- state of a thread (sync.c) ------------------------------------------------------------------------------------------ */

enum { RS_GUARD_WAIT, RS_GUARD_ONCE };
/* Lies in the frame of a wrapper that an exception, a cancellation or a siglongjmp may leave without returning. */
struct rs_guard {
	int type;
	void (*undo)(struct rs_thread *t, struct rs_guard *g); /* run when the frame is unwound; the guard is unlinked already */
};

/* An announced wait. */
struct rs_pending {
	struct rs_guard g;
	struct rs_wait before; /* what the slot said */
	uintptr_t obj;
	uintptr_t mutex; /* of a condition wait */
	uint8_t kind, mode, how;
	uint32_t stack, value;
};

/* Orders already sent, by hash: lines of tags, of which the first is the segment that the others are of. */
#define RS_ORDER_TAGS 16
#define RS_ORDER_LINES 32
#define RS_ORDER_LINES_MORE 4096
struct rs_order_line { uint32_t tag[RS_ORDER_TAGS]; } __attribute__((aligned(64)));
#define RS_HELD_FIRST RS_HELD_IN_SLOT
#define RS_GUARDS 64

/* One for every struct rs_thread that ever took a lock, in t->order_cache; linked for good, and taken over with it by the slot's next
 * thread. Other threads read the fields marked (others). */
struct rs_sync_state {
	struct rs_sync_state *next;
	struct rs_thread *thread;
	struct rs_slot *slot;  /* (others) */
	uint32_t tid, number;  /* (others) */
	uint32_t ended;        /* (others) the thread has said its last, or is not in this process (fork) */
	uint32_t held_lost;    /* no memory for the held list: absence from it proves nothing */
	uintptr_t wait_obj;    /* (others) conditions, barriers, semaphores; 0: none */
	uintptr_t wait_mutex;  /* (others) */
	uint64_t wait_ever;    /* (others) of a condition with private waiters: its __wseq before the wait */
	uint32_t wait_stack;   /* (others) */
	uint32_t misuses;
	uint64_t segment;      /* raised by thread-create and join; part of the order hash, so that raising it clears the cache */
	uint32_t guards;        /* how many are pushed; those beyond the array are only counted */
	struct { struct rs_guard *g; int type; } guard[RS_GUARDS]; /* the type again: a dead frame may not be read */
	void *once;            /* once.c: innermost running initialiser */
	/* (others) Of the entries of the held list with the same index: for RS_STACK_LATER as in zz_wire.h; for RS_INFO_TRIAL, n pairs of an address
	 * above the moment's words and what was there. */
	struct rs_moment moment[RS_HELD_FIRST];
	struct rs_order_line *orders;  /* order_own, or a larger one for threads with thousands of orders (arrays of locks) */
	uint32_t order_lines;          /* a power of two */
	uint32_t order_lost;           /* tags that gave way to others */
	struct rs_order_line order_own[RS_ORDER_LINES];
};
/* NULL when there was no memory: callers then do without. */
static inline struct rs_sync_state *rs_sync_of(struct rs_thread *t) { return t->order_cache; }
/* Makes the state or takes over that of the slot's former thread, and once per process checks what the quick paths rely on. At the head of every slow path. */
void rs_sync_prepare(struct rs_thread *t);
static inline void rs_sync_ready(struct rs_thread *t)
{
	struct rs_sync_state *s = rs_sync_of(t);
	if (RS_UNLIKELY(s == NULL || s->number != t->number))
		rs_sync_prepare(t);
}
/* The thread with kernel tid `tid` if it lives in this process, took locks, and its visible held list has obj; else NULL. The
 * second opinion before a misuse names another owner: a tid in an object may be another process's, or of before a fork. */
struct rs_sync_state *rs_sync_holder(uint32_t tid, uintptr_t obj);
/* Copies n bytes of our own memory that may not be there; false: it is not, or that cannot be told. */
bool rs_read_safely(void *to, uintptr_t from, size_t n);
/* Any other live thread whose visible held list has obj. */
struct rs_sync_state *rs_sync_other_holder(struct rs_thread *t, uintptr_t obj);
/* How many live threads wait on cond with / without this mutex; *sample is one without. */
void rs_sync_cond_waiters(uintptr_t cond, uintptr_t mutex, unsigned *with, unsigned *without, struct rs_sync_state **sample);
/* A live thread that waits at obj, or NULL. */
struct rs_sync_state *rs_sync_waits_at(uintptr_t obj);
/* A live thread in a condition wait with this mutex, or NULL. */
struct rs_sync_state *rs_sync_waits_with(uintptr_t mutex);

/* --- held list (sync.c) --------------------------------------------------------------------------------------------------- */

/* rs_held_slot.info: stack | mode<<32 | kind<<40 | extra read holds<<48 | trial<<63; the last two are ours alone and never sent. */
#define RS_INFO(stack, mode, kind) ((uint64_t)(stack) | (uint64_t)(mode) << 32 | (uint64_t)(kind) << 40)
#define RS_INFO_KIND(i) ((unsigned)((i) >> 40) & 0xff)
#define RS_INFO_MODE(i) ((unsigned)((i) >> 32) & 0xff)
#define RS_INFO_STACK(i) ((uint32_t)(i))
#define RS_INFO_SENT 0xffffffffffffull
#define RS_INFO_AGAIN (1ull << 48)
#define RS_INFO_INNER(i) (((i) & ~RS_INFO_TRIAL) >> 48) /* extra read holds */
#define RS_INFO_TRIAL (1ull << 63) /* the entry's moment says what to look at when it is given up: see moment.c */

/* The list lies in the slot, where Go and other threads see it, until it is longer than that; then its first entries are in both. */
static inline bool rs_held_in_slot(const struct rs_thread *t) { return t->held == t->slot->held; }
static inline void rs_held_write(struct rs_thread *t, uint32_t n, uintptr_t obj, uint64_t info)
{
	t->held[n].obj = obj;
	t->held[n].info = info; /* what is ours alone in it, nobody else reads */
	if (RS_UNLIKELY(!rs_held_in_slot(t)) && n < RS_HELD_IN_SLOT) {
		t->slot->held[n].obj = obj;
		t->slot->held[n].info = info;
	}
}
static inline void rs_held_count(struct rs_thread *t, uint32_t n)
{
	__asm__ volatile("" ::: "memory");
	t->quick = (uint64_t)n << 32 | (uint32_t)t->quick;
	t->slot->held_count = n;
	__asm__ volatile("" ::: "memory");
}
/* Appends; the caller saw held_count < held_cap. */
static inline void rs_held_put(struct rs_thread *t, uintptr_t obj, uint64_t info)
{
	uint32_t n = t->held_count;
	rs_held_write(t, n, obj, info);
	rs_held_count(t, n + 1);
	/* A handler that took a lock between the two lines above used the same place. */
	if (RS_UNLIKELY(*(volatile uint64_t *)&t->held[n].obj != obj))
		rs_held_write(t, n, obj, info);
}
/* The same where t->quick is 0, so that this is the first. */
static inline void rs_held_first(struct rs_thread *t, uintptr_t obj, uint64_t info)
{
	struct rs_slot *slot = t->slot;
	do { /* again if a handler used the same place, or moved the list */
		struct rs_held_slot *own = t->held;
		own->obj = obj;
		own->info = info;
		if (RS_UNLIKELY(own != slot->held)) {
			slot->held[0].obj = obj;
			slot->held[0].info = info;
		}
		__asm__ volatile("" ::: "memory");
		t->quick = RS_QUICK_ONE;
		slot->held_count = 1;
		__asm__ volatile("" ::: "memory");
	} while (RS_UNLIKELY(t->held[0].obj != obj));
}
/* The list, with one entry and t->quick RS_QUICK_ONE, is empty again. */
static inline void rs_held_none(struct rs_thread *t)
{
	__asm__ volatile("" ::: "memory");
	t->quick = 0;
	t->slot->held_count = 0;
	__asm__ volatile("" ::: "memory");
}
/* Index of the newest entry of obj, -1 if none. */
static inline int rs_held_find(const struct rs_thread *t, uintptr_t obj)
{
	for (int i = (int)t->held_count - 1; i >= 0; i--)
		if (t->held[i].obj == obj)
			return i;
	return -1;
}
void rs_held_remove(struct rs_thread *t, int i);
/* Where the thread took the i-th lock of its held list. */
uint32_t rs_held_stack_at(struct rs_thread *t, uint32_t i);
/* Where the thread took obj, 0 if not known. */
uint32_t rs_held_stack(struct rs_thread *t, uintptr_t obj);
/* The same for another thread, from its slot. */
uint32_t rs_slot_held_stack(const struct rs_slot *slot, uintptr_t obj);

/* --- moments (moment.c) --------------------------------------------------------------------------------------------------- */

/* Call sites: pc << 16 | trials passed. See moment.c. */
#define RS_SITE_BITS 12
#define RS_SITE_TRIALS 16
#define RS_MOMENT_SPAN (RS_MOMENT_WORDS * 8)
extern uint64_t rs_sites[1 << RS_SITE_BITS] __attribute__((visibility("hidden")));
static inline unsigned rs_site_place(uintptr_t pc) { return (unsigned)(pc * 0x9e3779b97f4a7c15ull >> (64 - RS_SITE_BITS)); }
/* Whether the n-th moment may be noted for a lock taken at `at`. Not for every site that is trusted. */
static inline bool rs_moment_fits(const struct rs_thread *t, uint32_t n, struct rs_site at)
{
	uintptr_t rsp = (uintptr_t)at.fp + 16;
	return n < RS_HELD_FIRST && rsp >= t->stack_lo && rsp < t->stack_hi && t->stack_hi - rsp >= RS_MOMENT_SPAN;
}
static inline bool rs_moment_trusted(uintptr_t pc)
{
	return __atomic_load_n(&rs_sites[rs_site_place(pc)], __ATOMIC_RELAXED) == (pc << 16 | RS_SITE_TRIALS);
}
/* Half as many stores, and no alignment asked for. */
typedef uint64_t rs_pair __attribute__((vector_size(16), aligned(8), may_alias));
static inline void rs_moment_note(struct rs_moment *m, struct rs_site at)
{
	uintptr_t rsp = (uintptr_t)at.fp + 16;
	m->pc = at.pc;
	m->rsp = rsp;
	m->rbp = *(const uint64_t *)at.fp;
#pragma GCC unroll 12
	for (unsigned i = 0; i < RS_MOMENT_WORDS; i += 2)
		*(rs_pair *)&m->word[i] = *(const rs_pair *)(rsp + 8 * i);
}
/* A caller whose stack pointer is rsp gives up a lock after a frame that m does not have whole was left. */
static inline bool rs_moment_strays(const struct rs_moment *m, uintptr_t rsp) { return rsp > m->rsp && rsp - m->rsp > RS_MOMENT_SPAN; }

/* What info says of the stack for a lock taken at `at` that becomes the n-th of the held list: its number, or RS_STACK_LATER with the moment noted;
 * perhaps with RS_INFO_TRIAL. Where no event is sent at once only. */
uint64_t rs_moment_take(struct rs_thread *t, struct rs_sync_state *s, uint32_t n, struct rs_site at);
/* Again, if a signal handler used the n-th moment before the held list said that it is taken. */
void rs_moment_again(struct rs_thread *t, struct rs_sync_state *s, uint32_t n, struct rs_site at);
/* The n-th is about to be given up by a caller whose stack pointer is rsp. */
void rs_moment_give(struct rs_sync_state *s, uint32_t n, uint64_t info, uintptr_t rsp);
/* The stack of m, which is the calling thread's own, or another's that may go on meanwhile. */
uint32_t rs_moment_stack(struct rs_thread *self, const struct rs_moment *m, bool own);
static inline bool rs_moment_used(uint64_t info) { return (info & RS_INFO_TRIAL) || RS_INFO_STACK(info) == RS_STACK_LATER; }
/* The i-th of the held list is given up by the interposed function called at `at`. */
static inline void rs_held_give(struct rs_thread *t, int i, struct rs_site at)
{
	if (rs_moment_used(t->held[i].info))
		rs_moment_give(rs_sync_of(t), (uint32_t)i, t->held[i].info, (uintptr_t)at.fp + 16);
	rs_held_remove(t, i);
}

/* As rs_acquired, where the stack is not known yet. */
void rs_acquired_at(struct rs_thread *t, uintptr_t obj, unsigned kind, unsigned mode, unsigned how, struct rs_site at);
/* obj was taken: held list, and `order` or `acquire`. */
void rs_acquired(struct rs_thread *t, uintptr_t obj, unsigned kind, unsigned mode, unsigned how, uint32_t stack);
/* [all] `release`, before obj is given up. */
static inline void rs_releasing(struct rs_thread *t, uintptr_t obj, unsigned kind, unsigned mode, unsigned how)
{
	if (RS_UNLIKELY(rs_config.all))
		RS_EMIT(t, RELEASE, release, obj, (uint8_t)kind, (uint8_t)mode, (uint8_t)how);
}

/* --- waits (sync.c) ------------------------------------------------------------------------------------------------------- */

/* Fill obj, mutex, kind, mode, how, stack, value, and g.undo where the wait can be unwound. */
void rs_want(struct rs_thread *t, struct rs_pending *w);
/* error 0: it got what it wanted. */
void rs_want_end(struct rs_thread *t, struct rs_pending *w, int error);
void rs_guard_push(struct rs_thread *t, struct rs_guard *g);
void rs_guard_pop(struct rs_thread *t, struct rs_guard *g);

/* Calls fn(a, b, c, d) in a frame that runs the innermost guard's undo when it is unwound (C++ exception, cancellation, pthread_exit).
 * The personality routine of that frame is our own, because linking with libgcc's would put libgcc_s into every target. */
long rs_guarded(void (*fn)(void), long a, long b, long c, long d) __attribute__((visibility("hidden")));
int rs_guard_personality(int version, int actions, uint64_t exception_class, void *exception, void *context)
	__attribute__((visibility("hidden")));

/* --- objects (object.c) ---------------------------------------------------------------------------------------------------- */

enum { RS_LIFE_UNSEEN, RS_LIFE_LIVE, RS_LIFE_DESTROYED };
/* extra bits of an object */
#define RS_OBJ_VOID 1ull      /* was given up by a thread that did not hold it: held lists lie about it */
#define RS_OBJ_LOCKLIKE 2ull  /* sem.c */

struct rs_object {
	uint64_t key;   /* address; never changes once set */
	uint64_t state; /* life | kind<<8 | flags<<16 | stack<<32: stack of init, or of destroy once destroyed */
	uint64_t extra;
	uint64_t spare;
};
/* The object's record, or NULL. */
struct rs_object *rs_object_find(uintptr_t obj);
static inline unsigned rs_object_life(const struct rs_object *o) { return o ? (uint8_t)__atomic_load_n(&o->state, __ATOMIC_ACQUIRE) : 0; }
static inline bool rs_object_has(const struct rs_object *o, uint64_t extra)
{
	return o && (__atomic_load_n(&o->extra, __ATOMIC_RELAXED) & extra) == extra;
}
/* Sends init and in-block if obj was never seen (static), or its init was not sent (late); before any event about it. */
void rs_object_seen(struct rs_thread *t, uintptr_t obj, unsigned kind);
/* The program waits at a word of its own, which is told if it lies in a block, once. */
void rs_object_awaited(struct rs_thread *t, uintptr_t word);
/* A successful init. Returns the record, or NULL. */
struct rs_object *rs_object_init(struct rs_thread *t, uintptr_t obj, unsigned kind, unsigned flags, uint32_t value, uint32_t stack);
/* A destroy that returned `result`. */
void rs_object_destroy(struct rs_thread *t, uintptr_t obj, unsigned kind, uint32_t stack, int result);
/* Records that held lists are wrong about obj. */
void rs_object_void(uintptr_t obj);
/* If obj is a destroyed object of this kind: true, and where. */
bool rs_object_destroyed(uintptr_t obj, unsigned kind, uint32_t *where);
/* A number that changes whenever the object at this address may have become another one. */
#define RS_GENERATION_BITS 10
extern uint32_t rs_generations[1 << RS_GENERATION_BITS] __attribute__((visibility("hidden")));
static inline uint32_t *rs_generation_place(uintptr_t obj) { return &rs_generations[(obj >> 3) * 0x9e3779b97f4a7c15ull >> (64 - RS_GENERATION_BITS)]; }
static inline uint32_t rs_object_generation(uintptr_t obj) { return __atomic_load_n(rs_generation_place(obj), __ATOMIC_RELAXED); }
/* For checks that are only certain off the stack. */
static inline bool rs_on_own_stack(const struct rs_thread *t, uintptr_t p) { return p >= t->stack_lo && p < t->stack_hi; }

/* Emits misuse if rs_config.misuse. */
void rs_misuse(struct rs_thread *t, uintptr_t obj, unsigned kind, unsigned what, int result, uint32_t stack, uint32_t stack2, uint64_t aux, uint32_t other);

/* --- nouns ------------------------------------------------------------------------------------------------------------------ */

/* mutex.c: does glibc lay out and keep mutexes as the quick path does? */
bool rs_mutex_verify(struct rs_thread *t);
/* rwlock.c, sem.c: likewise, of those. */
bool rs_rwlock_verify(struct rs_thread *t);
bool rs_sem_verify(void);
unsigned rs_mutex_flags(uintptr_t m);
unsigned rs_rwlock_flags(uintptr_t rw);
uint32_t rs_rwlock_preference(uintptr_t rw);
/* Has our destroy left its mark? */
bool rs_rwlock_marked(const pthread_rwlock_t *rw);
unsigned rs_cond_flags(uintptr_t c);

int rs_mutex_lock(pthread_mutex_t *m, struct rs_site at);
int rs_mutex_trylock(pthread_mutex_t *m, struct rs_site at);
/* clock < 0: pthread_mutex_timedlock */
int rs_mutex_timedlock(pthread_mutex_t *m, int clock, const struct timespec *abstime, struct rs_site at);
int rs_mutex_unlock(pthread_mutex_t *m, struct rs_site at);
int rs_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *attr, unsigned flags, struct rs_site at);
int rs_mutex_destroy(pthread_mutex_t *m, struct rs_site at);
/* The thread owns m by m's own bytes, in a kind that keeps them. */
bool rs_mutex_owned(const struct rs_thread *t, const pthread_mutex_t *m);
bool rs_mutex_recursive_inner(const struct rs_thread *t, const pthread_mutex_t *m);

int rs_cond_init(pthread_cond_t *c, const pthread_condattr_t *attr, unsigned flags, struct rs_site at);
int rs_cond_destroy(pthread_cond_t *c, struct rs_site at);
int rs_cond_signal(pthread_cond_t *c, bool all, struct rs_site at);
/* abstime NULL: no timeout; clock < 0: the condition's own */
int rs_cond_wait(pthread_cond_t *c, pthread_mutex_t *m, int clock, const struct timespec *abstime, struct rs_site at);
int rs_once(pthread_once_t *once, void (*routine)(void), struct rs_site at);

static inline bool rs_valid_timeout(const struct timespec *ts) { return ts->tv_nsec >= 0 && ts->tv_nsec < 1000000000; }
static inline bool rs_valid_clock(int clock) { return clock < 0 || clock == 0 /* REALTIME */ || clock == 1 /* MONOTONIC */; }
#endif
