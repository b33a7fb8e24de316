/* guardthread.c: threads that are born, end or are joined in an epoch. See guardthread.h, guardlog.h; docs/decisions.md, 46.
 *
 * In a nutshell. glibc's own code runs in recording and re-execution; what is different are two system calls. `exit`: the thread does what the kernel would do for others (its word is cleared, who waits for that is woken), on a
 * stack of ours, and is kept from ending until the epoch does: a rollback can put it back. `clone3`: in a re-execution the thread of the recording, which a rollback has made wait where it was born, goes on from there.
 * The memory of threads that have ended is given to new ones in an order: creates, joins, detaches and ends are under one lock (of guard's), from before glibc's part to behind it.
 *
 * Ground rules: guard.h's; general registers only. */
#include "guardthread.h"
#include "guardepoch.h"
#include "guardfault.h"
#include "guardrseq.h"
#include "guardsync.h"
#include "guardsys.h"
#include "real.h"
#include "world.h"
#include <dlfcn.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <linux/futex.h>
#include <sched.h>

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STORE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELEASE)

/* KEPT: natively they would be gone: programs count threads, and have limits. */
enum { BIRTHS = 128, KEPT = 32, CLEARED = 24 << 10, SLICE_MS = 50, LOCK_SECONDS = 1, LOCK_MOST = 10 };

struct birth {
	uint32_t tid;
	uint32_t mxcsr;
	uint16_t control;
	uint64_t tls, clear_tid;
	greg_t gregs[NGREG];
};
static struct threads {
	uint32_t births, kept;
	uint64_t word_at;          /* from a thread's handle to the word that the kernel clears; 0: not known yet */
	uintptr_t rseq_offset, rseq_size;
	uint32_t nobodys[8] __attribute__((aligned(32))); /* an rseq area */
	struct birth birth[BIRTHS];
} *threads;
static struct rs_guard_order order; /* the lock; the program's memory */

static bool is_self(const struct rs_guard_log *t) { return rs_os_tid() == t->tid; }

static struct rs_guard_log *followed(void)
{
	struct rs_guard_log *t = rs_guard_on && threads ? rs_guard_self() : NULL;
	return t && rs_guard_world()->session && rs_guard_mode() && !t->outside && is_self(t) ? t : NULL;
}

/* --- the lock ----------------------------------------------------------------------------------------------------------------- */

/* Not for ever: destructors of the program's run while a thread that ends has it, and may wait for who waits here. Handlers may, while one has that leaves. */
static void lock(struct rs_guard_log *t)
{
	if (t->doing & (RS_GUARD_ENDS | RS_GUARD_ORDERED | RS_GUARD_UNHELD)) {
		t->doing += RS_GUARD_NESTED;
		return;
	}
	if (rs_guard_order_lock(t, &order, LOCK_SECONDS, LOCK_MOST)) {
		t->doing |= RS_GUARD_ORDERED;
	} else {
		/* And so is each that begins before it is through (rs_guard_log_new). In this order: one may end in between. */
		t->doing |= RS_GUARD_UNHELD;
		RS_BARRIER();
		rs_guard_lost(RS_GUARD_LOST_THREAD);
	}
}

static void unlock(struct rs_guard_log *t)
{
	if (t->doing >= RS_GUARD_NESTED) {
		t->doing -= RS_GUARD_NESTED;
		return;
	}
	bool has = t->doing & RS_GUARD_ORDERED;
	t->doing &= ~(RS_GUARD_ORDERED | RS_GUARD_UNHELD);
	if (has)
		rs_guard_order_unlock(&order);
}

void rs_guard_threads_lock(uintptr_t sp)
{
	struct rs_guard_log *t = followed();
	if (t) {
		t->sp = sp;
		lock(t);
	}
}

void rs_guard_threads_unlock(void)
{
	struct rs_guard_log *t = rs_guard_on && threads ? rs_guard_self() : NULL;
	if (t)
		unlock(t);
}

/* What is 0 is not written: most of a thread's stack nobody ever was in, and a page that is only read has no memory, nor a copy at the checkpoint. By lines: as quick as to write them. Both are multiples of 8. */
static void forget(uintptr_t lo, uintptr_t hi)
{
	enum { LINE = 64 };
	for (volatile uint64_t *p = (volatile uint64_t *)lo; (uintptr_t)p < hi;) {
		if ((uintptr_t)p % LINE == 0 && hi - (uintptr_t)p >= LINE && !(p[0] | p[1] | p[2] | p[3] | p[4] | p[5] | p[6] | p[7]))
			p += 8;
		else if (*p++)
			p[-1] = 0;
	}
}

size_t rs_guard_forgets(void)
{
	enum { USUAL = 1024, DEEP = 12 << 10, SPARE = 512 };
	const struct rs_thread *t = rs_thread_tls;
	uintptr_t sp = (uintptr_t)__builtin_frame_address(0);
	if (!t || sp < t->stack_lo + USUAL + SPARE || sp >= t->stack_hi)
		return USUAL; /* less than a signal's frame */
	uintptr_t room = sp - t->stack_lo - SPARE, callers = sp + 16;
	forget(callers - (room < DEEP ? room & -8ul : DEEP), callers - USUAL);
	return USUAL;
}

/* --- births ------------------------------------------------------------------------------------------------------------------------ */

bool rs_guard_create_begin(uintptr_t sp)
{
	struct rs_guard_log *t = followed();
	rs_guard_words_begin();
	if (!t) {
		rs_guard_out(RS_GUARD_LOST_THREAD);
		return false;
	}
	t->sp = sp;
	lock(t);
	t->doing |= RS_GUARD_CREATES;
	return true;
}

void rs_guard_create_end(bool was)
{
	struct rs_guard_log *t = was ? rs_guard_self() : NULL;
	if (!was)
		rs_guard_in();
	if (t) {
		t->doing &= ~RS_GUARD_CREATES;
		unlock(t);
	}
}

bool rs_guard_create_retry(uintptr_t sp)
{
	struct rs_guard_log *t = followed();
	const uintptr_t there = (uintptr_t)&order + 1;
	if (!t || (rs_guard_mode() == RS_GUARD_RECORD ? !LOAD(threads->kept) : t->at != t->end || t->pending_end != RS_GUARD_WHAT(there, RS_GUARD_ORDER)))
		return false;
	t->sp = sp;
	rs_guard_fault_drop();
	rs_guard_epoch_end(t, there, RS_GUARD_ORDER);
	return true;
}

struct clone_args { uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls; };

static bool is_thread(const struct rs_call *c)
{
	const struct clone_args *a = (const struct clone_args *)c->arg[0];
	const uint64_t flags = CLONE_VM | CLONE_THREAD | CLONE_SETTLS | CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
	return c->arg[1] >= sizeof *a && (a->flags & flags) == flags;
}

long rs_guard_thread_clone(struct rs_guard_log *t, struct rs_call *c, unsigned mode)
{
	if (!t || mode == RS_GUARD_OFF || t->outside || !threads)
		return RS_GUARD_MAKE_PASS;
	const struct clone_args *a = (const struct clone_args *)c->arg[0];
	if (is_thread(c))
		threads->word_at = a->child_tid - a->tls;
	if (!(t->doing & RS_GUARD_CREATES) || !is_thread(c) || (mode == RS_GUARD_RECORD && LOAD(threads->births) >= BIRTHS)) {
		rs_guard_lost(RS_GUARD_LOST_THREAD);
		return RS_GUARD_MAKE_PASS;
	}
	/* glibc has all signals blocked, and here it may stand. */
	const uint64_t stops = 1ull << (RS_WORLD_SIGNAL - 1);
	RS_SYS4(SYS_rt_sigprocmask, SIG_UNBLOCK, &stops, NULL, 8);
	/* The new thread has them as they are here, and may lay them down on its stack. In a re-execution it has none (rs_world_unborn). To glibc's clone3, a function, they are nothing. */
	rs_vectors_clear();
	if (mode == RS_GUARD_REPLAY)
		return 0;
	rs_guard_call_begin(t, (uint16_t)c->number, false);
	if (!t->inner)
		return -1;
	STORE(t->inner, RS_GUARD_INNER); /* until it is written down */
	return RS_GUARD_MAKE_BIRTH;
}

void rs_guard_thread_made(const struct rs_call *c)
{
	const struct clone_args *a = (const struct clone_args *)c->arg[0];
	uint32_t i = __atomic_fetch_add(&threads->births, 1, __ATOMIC_ACQ_REL);
	if (i >= BIRTHS) {
		rs_guard_lost(RS_GUARD_LOST_THREAD);
		return;
	}
	struct birth *b = &threads->birth[i];
	rs_os_clear(b, sizeof *b);
	b->tls = a->tls;
	b->clear_tid = a->child_tid;
	__asm__ volatile("stmxcsr %0\n\tfnstcw %1" : "=m"(b->mxcsr), "=m"(b->control));
	/* As the hook lets it go on (syshook.c). */
	greg_t *g = b->gregs;
	g[REG_RDI] = (greg_t)c->rdi, g[REG_RSI] = (greg_t)c->rsi, g[REG_RDX] = (greg_t)c->rdx, g[REG_R10] = (greg_t)c->r10, g[REG_R8] = (greg_t)c->r8;
	g[REG_RIP] = g[REG_RCX] = (greg_t)c->at + 2;
	g[REG_RSP] = (greg_t)(a->stack + a->stack_size);
	g[REG_EFL] = g[REG_R11] = 0x246;
	STORE(b->tid, (uint32_t)c->result);
}

/* The thread goes on with its recorded registers, and so on its recorded stack. If the re-execution has made ready another one, it can only fault, and as it has no alternate stack yet the kernel may end the process then. */
static bool as_born(const struct rs_call *c, uint32_t tid)
{
	const struct clone_args *a = (const struct clone_args *)c->arg[0];
	for (uint32_t i = 0; i < threads->births && i < BIRTHS; i++) {
		const struct birth *b = &threads->birth[i];
		if (b->tid == tid)
			return b->tls == a->tls && b->clear_tid == a->child_tid && (uint64_t)b->gregs[REG_RSP] == a->stack + a->stack_size && (uint64_t)b->gregs[REG_RDX] == c->rdx && (uint64_t)b->gregs[REG_R8] == c->r8;
	}
	return false;
}

void rs_guard_thread_again(struct rs_guard_log *t, const struct rs_call *c, long result)
{
	const struct clone_args *a = (const struct clone_args *)c->arg[0];
	if (result <= 0)
		return;
	int32_t tid = (int32_t)result;
	rs_os_copy((void *)a->parent_tid, &tid, sizeof tid); /* glibc's own: nobody watches it */
	if (!as_born(c, (uint32_t)tid)) {
		rs_guard_diverged(t, RS_GUARD_CALL_ARGUMENT, (uint64_t)tid, a->stack);
		return;
	}
	for (uint32_t i = 0; i < rs_guard_world()->logs; i++)
		if (rs_guard_log(i)->tid == (uint32_t)tid && LOAD(rs_guard_log(i)->state) == RS_GUARD_UNBORN)
			STORE(rs_guard_log(i)->state, RS_GUARD_RUNS);
	rs_world_born((uint32_t)tid);
}

bool rs_guard_thread_lives(const struct rs_guard_log *own, uint64_t lo, uint64_t bytes)
{
	for (uint32_t i = 0; threads && i < rs_guard_world()->logs; i++) {
		const struct rs_guard_log *t = rs_guard_log(i);
		if (t != own && LOAD(t->tid) && t->handle && t->handle - lo < bytes && LOAD(t->state) != RS_GUARD_UNBORN && !LOAD(t->gave_up))
			return true;
	}
	return false;
}

/* --- ends ------------------------------------------------------------------------------------------------------------------------------- */

void rs_guard_thread_begin(bool own_stack)
{
	struct rs_guard_log *t = rs_guard_on ? rs_guard_self() : NULL;
	if (!t)
		return;
	t->outside = t->young = 0;
	t->stack_hi = rs_thread_tls ? rs_thread_tls->stack_hi : 0;
	t->stack_lo = rs_thread_tls && !own_stack ? rs_thread_tls->stack_lo : 0;
	t->handle = (uint64_t)pthread_self();
	uint32_t *word = threads && threads->word_at ? (uint32_t *)(t->handle + threads->word_at) : NULL;
	t->word = word && *word == t->tid ? word : NULL;
}

/* It is gone when the kernel says so: the coordinator looks (rs_guard_log_new). */
void rs_guard_thread_end(uintptr_t sp)
{
	struct rs_guard_log *t = followed();
	if (t && t->word) {
		t->sp = sp;
		lock(t);
		t->doing |= RS_GUARD_ENDS;
		return;
	}
	rs_guard_out(RS_GUARD_LOST_THREAD);
	if (rs_guard_on && rs_guard_mode() && rs_guard_world()->session)
		rs_guard_poke_soon();
}

static bool no_robust(void)
{
	struct { void *next; } *head = NULL;
	size_t size;
	return RS_SYS3(SYS_get_robust_list, 0, &head, &size) == 0 && (!head || head->next == head);
}

/* The thread has no rseq area, or glibc's. Nobody but the kernel knows of one that the program registers itself (tcmalloc, where glibc is told to leave it: glibc.pthread.rseq=0): it is written to when its memory may be gone, and the kernel kills for that. */
static bool no_other_rseq(const struct rs_guard_log *t)
{
	long r = RS_SYS4(RS_RSEQ, threads->nobodys, sizeof threads->nobodys, 0, RS_RSEQ_SIGNATURE);
	if (r == 0)
		RS_SYS4(RS_RSEQ, threads->nobodys, sizeof threads->nobodys, RS_RSEQ_GIVE_UP, RS_RSEQ_SIGNATURE);
	/* There is another one: is it that? */
	return r != -EINVAL || (threads->rseq_size && RS_SYS4(RS_RSEQ, t->handle + threads->rseq_offset, rs_rseq_bytes, 0, RS_RSEQ_SIGNATURE) == -EBUSY);
}

/* On a stack of ours. */
static __attribute__((noreturn, used)) void keep(struct rs_guard_log *t)
{
	static const stack_t none = {.ss_flags = SS_DISABLE};
	const uint64_t mask = ~(1ull << (RS_WORLD_SIGNAL - 1)) & ~rs_os_open;
	struct rs_guard_world *w = rs_guard_world();
	RS_SYS4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, 8);
	RS_SYS2(SYS_sigaltstack, &none, NULL);
	if (threads->rseq_size)
		RS_SYS4(RS_RSEQ, t->handle + threads->rseq_offset, rs_rseq_bytes, RS_RSEQ_GIVE_UP, RS_RSEQ_SIGNATURE);
	STORE(t->gave_up, 1);
	RS_SYS1(SYS_set_tid_address, 0);
	/* The stack may be another thread's: what this one's calls left there is the same in both. Further down glibc has given it back to the kernel. */
	uintptr_t lo = t->sp - CLEARED > t->stack_lo ? t->sp - CLEARED : t->stack_lo;
	if (t->stack_lo && t->stack_lo < t->sp)
		forget(lo & -8ul, t->sp & -8ul);
	/* The ticket first: who sees that it has ended has a later one. No checkpoint until it is kept: of one that is not, a rollback would give back the rseq area. */
	rs_guard_after_still(t, t->handle, RS_GUARD_EXIT, 0, true);
	STORE(*t->word, 0);
	RS_SYS3(SYS_futex, t->word, FUTEX_WAKE, INT32_MAX);
	unlock(t);
	t->doing = 0;
	__atomic_fetch_add(&threads->kept, 1, __ATOMIC_ACQ_REL);
	t->pending = RS_GUARD_WHAT(t->handle, RS_GUARD_EXIT);
	STORE(t->state, RS_GUARD_KEPT);
	STORE(t->inner, 0);
	__atomic_fetch_add(&w->ended, 1, __ATOMIC_SEQ_CST);
	RS_SYS3(SYS_futex, &w->ended, FUTEX_WAKE_PRIVATE, 1);
	for (;;) {
		uint32_t gate = LOAD(w->gate);
		if (LOAD(w->mode) == RS_GUARD_OFF)
			break;
		RS_SYS4(SYS_futex, &w->gate, FUTEX_WAIT_PRIVATE, gate, NULL);
	}
	static const struct { const void *next; long offset; const void *pending; } nothing = {&nothing, 0, NULL};
	RS_SYS2(SYS_set_robust_list, &nothing, 24);
	RS_SYS1(SYS_exit, 0);
	__builtin_unreachable();
}

long rs_guard_thread_exit(struct rs_guard_log *t, unsigned mode)
{
	struct rs_guard_world *w = rs_guard_world();
	if (!t || !(t->doing & RS_GUARD_ENDS)) {
		if (t && mode != RS_GUARD_OFF && !t->outside)
			rs_guard_lost(RS_GUARD_LOST_THREAD);
		return RS_GUARD_MAKE_PASS;
	}
	if (mode == RS_GUARD_RECORD && w->every && !t->outside && !LOAD(w->lost) && !rs_guard_is_faulted(w) && LOAD(threads->kept) >= KEPT) {
		rs_guard_epoch_end(t, t->handle, RS_GUARD_EXIT);
		return -1;
	}
	if (mode == RS_GUARD_RECORD && (t->outside || LOAD(w->lost) || t->tid == (uint32_t)rs_os_pid() || LOAD(threads->kept) >= KEPT || !no_robust() || !no_other_rseq(t))) {
		rs_guard_out_before(RS_GUARD_LOST_THREAD, t->handle, RS_GUARD_EXIT);
		rs_guard_poke_soon();
		mode = RS_GUARD_OFF;
	}
	if (mode != RS_GUARD_OFF)
		rs_guard_before(t, t->handle, RS_GUARD_EXIT, NULL);
	if (mode == RS_GUARD_OFF || rs_guard_mode() == RS_GUARD_OFF) {
		rs_guard_no_act(t);
		unlock(t);
		t->doing = 0;
		return RS_GUARD_MAKE_PASS;
	}
	__asm__ volatile("movq %0, %%rsp\n\txorl %%ebp, %%ebp\n\tcall *%1\n\tud2" : : "r"(t->end_stack), "r"(keep), "D"(t) : "memory");
	__builtin_unreachable();
}

/* --- leaving -------------------------------------------------------------------------------------------------------------------------- */

/* libc's, of which only this is wanted: it loads the unwinder before it looks how many frames are asked for. NULL: another one comes first. */
static int (*backtrace)(void **, int);

static void find_backtrace(void)
{
	static bool looked; /* a forked child asks no loader */
	Dl_info of, libc;
	if (looked)
		return;
	looked = true;
	void *found = rs_real_find("backtrace", "");
	if (found && dladdr(found, &of) && dladdr((void *)gnu_get_libc_version, &libc) && of.dli_fbase == libc.dli_fbase)
		backtrace = (int (*)(void **, int))found;
}

void rs_guard_unwinds(uintptr_t sp)
{
	struct rs_guard_log *t = backtrace ? followed() : NULL;
	if (!t)
		return;
	t->sp = sp;
	lock(t);
	RS_GUARD_FORGET();
	backtrace(NULL, 0);
	unlock(t);
}

/* --- joins -------------------------------------------------------------------------------------------------------------------------------- */

static bool has_ended(const uint32_t *word) { return LOAD(*word) == 0; }

/* The kernel clears the word of those who are not kept, and wakes who waits there without the flag for private ones. */
static long wait_word(struct rs_guard_log *t, uint32_t *word, const struct timespec *until)
{
	uint32_t value = LOAD(*word);
	long r = 0;
	STORE(t->inner, 0);
	t->wait = word;
	STORE(t->state, RS_GUARD_WAITS);
	if (value)
		r = RS_SYS6(SYS_futex, word, FUTEX_WAIT_BITSET, value, until, 0, ~0u);
	STORE(t->state, RS_GUARD_RUNS);
	return r;
}

static bool passed(int clock, const struct timespec *until)
{
	struct timespec now = {0};
	RS_SYS2(SYS_clock_gettime, clock, &now);
	return now.tv_sec > until->tv_sec || (now.tv_sec == until->tv_sec && now.tv_nsec >= until->tv_nsec);
}

/* Cancellation does not end waits of ours: they are short, and look. */
static void slice(struct timespec *until)
{
	RS_SYS2(SYS_clock_gettime, CLOCK_MONOTONIC, until);
	until->tv_nsec += SLICE_MS * 1000000;
	if (until->tv_nsec >= 1000000000) {
		until->tv_nsec -= 1000000000;
		until->tv_sec++;
	}
}

int rs_guard_join(pthread_t thread, int op, int clock, const struct timespec *abstime, uintptr_t sp)
{
	struct rs_guard_log *t = followed();
	uint64_t handle = (uint64_t)thread;
	if (!t || !threads->word_at || handle == (uint64_t)pthread_self())
		return RS_GUARD_PASS;
	t->sp = sp;
	if (op == RS_GUARD_LOCK && rs_guard_mode() == RS_GUARD_RECORD)
		STORE(t->wants, t->wants + 1); /* join.c has told of it */
	uint32_t *word = (uint32_t *)(handle + threads->word_at);
	for (;;) {
		struct rs_guard_event was;
		bool again = rs_guard_before(t, handle, RS_GUARD_JOIN, &was) && was.what;
		int r = again && was.result ? was.result : has_ended(word) ? 0 : op == RS_GUARD_TRY && !again ? EBUSY : -1;
		if (r == -1 && op == RS_GUARD_TIMED && !again && passed(clock, abstime))
			r = ETIMEDOUT;
		if (r >= 0) {
			rs_guard_after(t, handle, RS_GUARD_JOIN, r, r == 0);
			return r;
		}
		struct timespec until;
		slice(&until);
		wait_word(t, word, &until);
		if (op != RS_GUARD_TRY && rs_guard_mode() == RS_GUARD_RECORD)
			rs_real.pthread_testcancel();
	}
}

/* --- the coordinator -------------------------------------------------------------------------------------------------------------------- */

enum { END_STACK = 32 << 10 };

long rs_guard_threads_begin(uintptr_t rseq_offset, uintptr_t rseq_size)
{
	char *stacks = rs_guard_map(RS_ARENA_OWN, (size_t)RS_GUARD_LOGS * END_STACK);
	struct threads *s = rs_guard_map(RS_ARENA_OWN, sizeof *s);
	if (!s || !stacks)
		return -ENOMEM;
	s->rseq_offset = rseq_offset, s->rseq_size = rseq_size;
	for (uint32_t i = 0; i < RS_GUARD_LOGS; i++)
		rs_guard_log(i)->end_stack = stacks + (size_t)(i + 1) * END_STACK;
	threads = s;
	order = (struct rs_guard_order){0}; /* a forked child's parent may have had it */
	find_backtrace();
	return 0;
}

static uint64_t rseq_of(const struct rs_guard_log *t) { return threads->rseq_size ? t->handle + threads->rseq_offset : 0; }

void rs_guard_threads_end(void)
{
	bool any = false;
	for (uint32_t i = 0; threads && i < rs_guard_world()->logs; i++) {
		struct rs_guard_log *t = rs_guard_log(i);
		struct rs_world_thread *w = t->tid && t->state == RS_GUARD_KEPT ? rs_world_of(t->tid) : NULL;
		if (!w)
			continue;
		w->order = RS_WORLD_EXIT;
		any = true;
	}
	if (any)
		rs_world_end_ordered();
	for (uint32_t i = 0; any && i < rs_guard_world()->logs; i++)
		if (rs_guard_log(i)->tid && rs_guard_log(i)->state == RS_GUARD_KEPT && !rs_world_of(rs_guard_log(i)->tid))
			rs_guard_log_drop(rs_guard_log(i));
}

void rs_guard_threads_new(void)
{
	if (threads)
		threads->births = threads->kept = 0;
}

bool rs_guard_threads_birth(uint32_t i, uint32_t *tid, uint64_t *rseq)
{
	if (!threads || i >= threads->births || i >= BIRTHS)
		return false;
	*tid = threads->birth[i].tid;
	*rseq = threads->rseq_size ? threads->birth[i].tls + threads->rseq_offset : 0;
	return true;
}

bool rs_guard_threads_is_born(uint32_t tid)
{
	uint32_t is, i = 0;
	uint64_t rseq;
	while (rs_guard_threads_birth(i, &is, &rseq) && is != tid)
		i++;
	return rs_guard_threads_birth(i, &is, &rseq);
}

bool rs_guard_threads_unborn(uint32_t tid)
{
	struct rs_world_thread *w = rs_world_of(tid);
	for (uint32_t i = 0; w && threads && i < threads->births && i < BIRTHS; i++) {
		struct birth *b = &threads->birth[i];
		if (b->tid != tid)
			continue;
		w->rseq = threads->rseq_size ? b->tls + threads->rseq_offset : 0;
		if (w->rseq && !w->unborn)
			rs_world_shed(w);
		rs_world_unborn(w, b->gregs, b->mxcsr, b->control);
		w->restore = true;
		w->clear_tid = b->clear_tid;
		w->rseq = 0; /* glibc does that */
		return true;
	}
	return false;
}

void rs_guard_threads_forward(void)
{
	for (uint32_t i = 0; threads && i < rs_guard_world()->logs; i++) {
		struct rs_guard_log *t = rs_guard_log(i);
		struct rs_world_thread *w = t->tid && t->fin.state == RS_GUARD_KEPT ? rs_world_of(t->tid) : NULL;
		if (w && (w->rseq = rseq_of(t)) != 0 && !w->unborn)
			rs_world_shed(w);
		if (w)
			t->gave_up = 1;
	}
}

bool rs_guard_threads_gave_up(uint64_t rseq)
{
	for (uint32_t i = 0; threads && i < rs_guard_world()->logs; i++) {
		const struct rs_guard_log *t = rs_guard_log(i);
		if (t->tid && t->gave_up && rseq_of(t) == rseq)
			return true;
	}
	return false;
}

void rs_guard_threads_restore(void)
{
	for (uint32_t i = 0; threads && i < rs_guard_world()->logs; i++) {
		struct rs_guard_log *t = rs_guard_log(i);
		struct rs_world_thread *w = t->tid && t->word && t->state != RS_GUARD_KEPT ? rs_world_of(t->tid) : NULL;
		if (!w || w->unborn || w->order != RS_WORLD_BACK)
			continue;
		w->restore = true;
		w->clear_tid = (uintptr_t)t->word;
		w->rseq = rseq_of(t);
		t->gave_up = 0;
	}
}
