/* cond.c: POSIX condition variables.
 *
 * A wait always goes to glibc with `want` around it; the mutex leaves the held list before and comes back after, also when the thread
 * is cancelled in the wait: glibc has taken the mutex again when our frame is unwound, before the program's cleanup handlers run.
 *
 * What the checks read of glibc's condition (nptl): __wrefs>>3 waiters that have not left, bit 2 destroyed, bit 0 shared between
 * processes. A waiter may have been signalled and not have left yet; then destroying is allowed, and so is another mutex. How many
 * were *not* signalled is what is left in group 1 plus the size of group 2 (glibc's own reckoning before it switches groups).
 */
#include "guardquick.h"
#include "opened.h"
#include "sync.h"

enum { SHARED = 1, DESTROYED = 4, WAITERS = 3 /* shift */ };

static inline unsigned wrefs_of(const pthread_cond_t *c) { return __atomic_load_n(&c->__data.__wrefs, __ATOMIC_ACQUIRE); }

unsigned rs_cond_flags(uintptr_t obj) { return wrefs_of((const pthread_cond_t *)obj) & SHARED ? RS_OBJ_FLAG_PSHARED : 0; }

/* Waiters that no signal has been sent for, and how many have ever waited (in a unit of its own). False: the condition is being changed while we look. */
static bool unsignalled(const pthread_cond_t *c, unsigned *waiters, uint64_t *ever)
{
	unsigned n[2];
	for (int i = 0; i < 2; i++) {
		uint64_t wseq = __atomic_load_n(&c->__data.__wseq.__value64, __ATOMIC_ACQUIRE);
		uint64_t start = __atomic_load_n(&c->__data.__g1_start.__value64, __ATOMIC_ACQUIRE);
		unsigned orig = __atomic_load_n(&c->__data.__g1_orig_size, __ATOMIC_ACQUIRE);
		unsigned g2 = wseq & 1, g1 = g2 ^ 1;
		unsigned size1 = __atomic_load_n(&c->__data.__g_size[g1], __ATOMIC_ACQUIRE);
		unsigned size2 = __atomic_load_n(&c->__data.__g_size[g2], __ATOMIC_ACQUIRE);
		*ever = wseq;
		if (orig & 3) /* its internal lock is taken */
			return false;
		n[i] = size1 + (unsigned)((wseq >> 1) - (start >> 1) - (orig >> 2)) + size2;
	}
	*waiters = n[0];
	return n[0] == n[1] && n[0] <= wrefs_of(c) >> WAITERS;
}

/* --- misuse ------------------------------------------------------------------------------------------------------------------------ */

/* glibc's own flag, which init and the static initialiser clear, and that we saw the destroy and nothing made there since. */
static void check_destroyed(struct rs_thread *t, pthread_cond_t *c, struct rs_site at)
{
	uint32_t where;
	if (RS_UNLIKELY(wrefs_of(c) & DESTROYED) && rs_object_destroyed((uintptr_t)c, RS_OBJECT_COND, &where))
		rs_misuse(t, (uintptr_t)c, RS_OBJECT_COND, RS_MISUSE_USE_AFTER_DESTROY, 0, rs_site_stack(t, at), where, 0, 0);
}

/* A thread that has called wait and has not gone to glibc shows the condition's address with this bit. */
enum { ENTERING = 1 };
/* How many do, or did when a signal handler left by longjmp or the process forked. */
static uint32_t entering;

/* A thread that waits on c with another mutex and has not been signalled; NULL: none is known. Certain in two cases:
 * - it is on its way into the wait, as we are: the two are at it at the same time, whoever begins first;
 * - waiters without a signal outnumber the threads that wait with m. Each thread shows its wait before glibc counts it and until after; and if
 *   as many waiters are without a signal before and after we look at the threads, and none came, they are the same ones. */
enum { YIELDS = 200, NAPS = 10 };
static struct rs_sync_state *waits_with_another(pthread_cond_t *c, pthread_mutex_t *m)
{
	unsigned with, without, before, after;
	uint64_t ever_before, ever_after;
	struct rs_sync_state *s;
	if (__atomic_load_n(&entering, __ATOMIC_RELAXED) > 1) {
		rs_sync_cond_waiters((uintptr_t)c | ENTERING, (uintptr_t)m, &with, &without, &s);
		if (s)
			return s;
	}
	/* Who has gone to glibc before us is counted there. One that shows its wait and is not is about to be, or has just left: for that a moment can
	 * be waited, since only programs that do use two mutexes come here; and some milliseconds if nobody was counted since it showed its wait, as it
	 * has then lost its processor on its way. */
	for (int i = 0; i < YIELDS + NAPS; i++) {
		bool still = unsignalled(c, &before, &ever_before);
		rs_sync_cond_waiters((uintptr_t)c, (uintptr_t)m, &with, &without, &s);
		if (without == 0)
			return NULL;
		still = still && unsignalled(c, &after, &ever_after) && before == after && ever_before == ever_after;
		if (still && before > with)
			return s;
		if (still && wrefs_of(c) >> WAITERS >= with + without)
			return NULL;
		if (rs_sandboxed)
			continue;
		if (i < YIELDS)
			RS_SYS0(SYS_sched_yield);
		else if (__atomic_load_n(&s->wait_ever, __ATOMIC_RELAXED) == ever_before)
			RS_SYS2(SYS_nanosleep, (long)&(struct timespec){.tv_nsec = 1000000}, 0);
		else
			return NULL;
	}
	return NULL;
}

/* By conditions' addresses: a condition and its mutex, mixed. While a pair is here nobody waits at the condition with another mutex: whoever does not find its own puts it
 * here and looks. */
enum { PAIR_BITS = 8 };
static uint64_t pairs[1 << PAIR_BITS];

/* Looks for a thread that waits with another mutex, after rs_want has announced t's wait; and shows to others that t is on its way into it. Shared
 * conditions are left alone: one mutex may be mapped at two addresses. */
static void check_mutex(struct rs_thread *t, pthread_cond_t *c, pthread_mutex_t *m, uint32_t stack)
{
	struct rs_sync_state *own = rs_sync_of(t);
	if (!own || wrefs_of(c) & SHARED)
		return;
	uint64_t key = (uintptr_t)c * 0x9e3779b97f4a7c15ull, pair = key ^ (uintptr_t)m * 0xff51afd7ed558ccdull;
	uint64_t *place = &pairs[key >> (64 - PAIR_BITS)];
	__atomic_store_n(&own->wait_ever, __atomic_load_n(&c->__data.__wseq.__value64, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_SEQ_CST); /* of two, one sees the other's wait or its pair */
	if (RS_LIKELY(__atomic_load_n(place, __ATOMIC_RELAXED) == pair))
		return;
	__atomic_store_n(&own->wait_obj, (uintptr_t)c | ENTERING, __ATOMIC_RELEASE);
	__atomic_fetch_add(&entering, 1, __ATOMIC_SEQ_CST);
	__atomic_exchange_n(place, pair, __ATOMIC_SEQ_CST);
	struct rs_sync_state *s = waits_with_another(c, m);
	if (s)
		rs_misuse(t, (uintptr_t)c, RS_OBJECT_COND, RS_MISUSE_COND_TWO_MUTEXES, 0, stack, s->wait_stack, s->wait_mutex, s->number);
	__atomic_fetch_sub(&entering, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&own->wait_obj, (uintptr_t)c, __ATOMIC_RELEASE);
}

/* A private mutex of a kind that keeps its owner, not ours by its bytes nor by the held list. Errorcheck and robust ones say so
 * themselves. */
static void check_held(struct rs_thread *t, pthread_cond_t *c, pthread_mutex_t *m, uint32_t stack)
{
	struct rs_sync_state *s = rs_sync_of(t);
	int kind = m->__data.__kind;
	uint32_t owner = (uint32_t)__atomic_load_n(&m->__data.__owner, __ATOMIC_RELAXED);
	if ((kind & ~(512 | 3)) != 0 || (kind & 3) == 2 || owner == t->tid || !s || s->held_lost || rs_held_find(t, (uintptr_t)m) >= 0)
		return;
	struct rs_sync_state *o = owner ? rs_sync_holder(owner, (uintptr_t)m) : NULL;
	if (!o && m->__data.__lock != 0)
		return; /* whose it is, we cannot tell */
	rs_misuse(t, (uintptr_t)c, RS_OBJECT_COND, RS_MISUSE_COND_WAIT_UNLOCKED, (kind & 3) == 1 ? EPERM : 0, stack,
		o ? rs_slot_held_stack(o->slot, (uintptr_t)m) : 0, (uintptr_t)m, o ? o->number : 0);
}

/* --- waiting --------------------------------------------------------------------------------------------------------------------------- */

struct cond_wait {
	struct rs_pending w;
	bool keeps; /* a recursive mutex, locked more than once: the wait does not give it up */
	bool held;
};

/* The mutex is held again: after a wait, or after its cancellation. */
static void reacquired(struct rs_thread *t, struct cond_wait *cw, int error)
{
	bool has = error != ENOTRECOVERABLE;
	rs_want_end(t, &cw->w, error == EOWNERDEAD ? 0 : error);
	if (has && !cw->keeps && cw->held)
		rs_acquired(t, cw->w.mutex, RS_OBJECT_MUTEX, RS_MODE_EXCLUSIVE, RS_HOW_COND, cw->w.stack);
	else if (has && cw->keeps && rs_config.all)
		RS_EMIT(t, ACQUIRE, acquire, cw->w.mutex, RS_OBJECT_MUTEX, RS_MODE_EXCLUSIVE, RS_HOW_RECURSIVE, cw->w.stack);
	if (rs_config.all)
		RS_EMIT(t, COND_WOKEN, cond_woken, cw->w.obj, cw->w.mutex, (uint32_t)error);
}

static void cancelled(struct rs_thread *t, struct rs_guard *g) { reacquired(t, (struct cond_wait *)g, ECANCELED); }

static int really(pthread_cond_t *c, pthread_mutex_t *m, int clock, const struct timespec *abstime)
{
	if (!abstime)
		return REAL(pthread_cond_wait)(c, m);
	return clock < 0 ? REAL(pthread_cond_timedwait)(c, m, abstime) : REAL(pthread_cond_clockwait)(c, m, clock, abstime);
}

int rs_cond_wait(pthread_cond_t *c, pthread_mutex_t *m, int clock, const struct timespec *abstime, struct rs_site at)
{
	RS_GUARDED(rs_guard_cond_wait(c, m, clock, abstime, RS_SITE_SP(at)));
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (!t)
		return really(c, m, clock, abstime);
	rs_sync_ready(t);
	check_destroyed(t, c, at);
	/* Refused before anything happens. */
	if (abstime && (!rs_valid_timeout(abstime) || !rs_valid_clock(clock)))
		return really(c, m, clock, abstime);
	uint32_t stack = rs_site_stack(t, at);
	uint8_t how = abstime ? RS_HOW_TIMED : RS_HOW_BLOCK;
	int i = rs_held_find(t, (uintptr_t)m);
	bool mine = i >= 0 || rs_mutex_owned(t, m);
	if (rs_config.misuse && !mine)
		check_held(t, c, m, stack);
	struct cond_wait cw = {.w = {.g = {.undo = cancelled}, .obj = (uintptr_t)c, .mutex = (uintptr_t)m, .kind = RS_OBJECT_COND, .how = how, .stack = stack}};
	cw.keeps = rs_mutex_recursive_inner(t, m);
	cw.held = mine;
	if (rs_config.all) {
		rs_object_seen(t, (uintptr_t)m, RS_OBJECT_MUTEX);
		rs_object_seen(t, (uintptr_t)c, RS_OBJECT_COND);
		RS_EMIT(t, COND_WAIT, cond_wait, (uintptr_t)c, (uintptr_t)m, how, stack);
		if (mine)
			RS_EMIT(t, RELEASE, release, (uintptr_t)m, RS_OBJECT_MUTEX, RS_MODE_EXCLUSIVE, cw.keeps ? RS_HOW_RECURSIVE : RS_HOW_COND);
	}
	if (i >= 0 && !cw.keeps)
		rs_held_remove(t, i);
	rs_want(t, &cw.w);
	if (rs_config.misuse)
		check_mutex(t, c, m, stack);
	int r = (int)rs_guarded((void (*)(void))really, (long)c, (long)m, clock, (long)abstime);
	reacquired(t, &cw, r);
	return r;
}

int rs_cond_signal(pthread_cond_t *c, bool all, struct rs_site at)
{
	RS_GUARDED(rs_guard_cond_signal(c, all, RS_SITE_SP(at)));
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (t && RS_UNLIKELY(rs_config.all || wrefs_of(c) & DESTROYED)) {
		rs_sync_ready(t);
		check_destroyed(t, c, at);
		if (rs_config.all) {
			rs_object_seen(t, (uintptr_t)c, RS_OBJECT_COND);
			uint32_t stack = rs_site_stack(t, at);
			RS_EMIT(t, COND_SIGNAL, cond_signal, (uintptr_t)c, all, stack);
		}
	}
	return all ? REAL(pthread_cond_broadcast)(c) : REAL(pthread_cond_signal)(c);
}

/* --- life --------------------------------------------------------------------------------------------------------------------------------- */

int rs_cond_init(pthread_cond_t *c, const pthread_condattr_t *attr, unsigned flags, struct rs_site at)
{
	RS_OPENS();
	struct rs_thread *t = rs_self();
	int r = REAL(pthread_cond_init)(c, attr);
	if (t && r == 0) {
		rs_sync_ready(t);
		rs_object_init(t, (uintptr_t)c, RS_OBJECT_COND, flags | rs_cond_flags((uintptr_t)c), 0, rs_site_stack(t, at));
	}
	return r;
}

int rs_cond_destroy(pthread_cond_t *c, struct rs_site at)
{
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (!t)
		return REAL(pthread_cond_destroy)(c);
	rs_sync_ready(t);
	uint32_t stack = rs_site_stack(t, at);
	/* Before the fact, because glibc waits for the waiters: a thread that shows its wait, and by glibc's reckoning one without a signal.
	 * (A forked child's copy counts the parent's waiters, but none of them shows a wait there.) */
	if (rs_config.misuse && wrefs_of(c) >> WAITERS != 0 && !(wrefs_of(c) & SHARED)) {
		unsigned with, without, waiting;
		uint64_t ever;
		struct rs_sync_state *s;
		rs_sync_cond_waiters((uintptr_t)c, 0, &with, &without, &s);
		if (without > 0 && unsignalled(c, &waiting, &ever) && waiting > 0)
			rs_misuse(t, (uintptr_t)c, RS_OBJECT_COND, RS_MISUSE_DESTROY_WAITED, 0, stack, s->wait_stack, waiting, s->number);
	}
	check_destroyed(t, c, at);
	int r = REAL(pthread_cond_destroy)(c);
	rs_object_destroy(t, (uintptr_t)c, RS_OBJECT_COND, stack, r);
	return r;
}

/* --- interposed --------------------------------------------------------------------------------------------------------------------------------- */

RS_EXPORT int pthread_cond_init(pthread_cond_t *c, const pthread_condattr_t *attr) { return rs_cond_init(c, attr, 0, RS_SITE); }
RS_EXPORT int pthread_cond_destroy(pthread_cond_t *c) { return rs_cond_destroy(c, RS_SITE); }
static APART int signal_any(pthread_cond_t *c) { return rs_cond_signal(c, false, RS_SITE); }
static APART int broadcast_any(pthread_cond_t *c) { return rs_cond_signal(c, true, RS_SITE); }
/* While `guard` keeps a log. */
static APART int signal_kept(pthread_cond_t *c, uintptr_t sp) { return rs_guard_cond_signal(c, false, sp); }
static APART int broadcast_kept(pthread_cond_t *c, uintptr_t sp) { return rs_guard_cond_signal(c, true, sp); }
RS_GUARD_SLOWLY(pthread_cond_t, rs_cond_signal_slowly, signal_kept, signal_any);
RS_GUARD_SLOWLY(pthread_cond_t, rs_cond_broadcast_slowly, broadcast_kept, broadcast_any);
static APART int signal_guarded(pthread_cond_t *c)
{
	if (RS_LIKELY(rs_guard_signals_quickly(c, false))) {
		RS_NO_REGISTERS();
		return 0;
	}
	JUMP rs_cond_signal_slowly(c);
}
static APART int broadcast_guarded(pthread_cond_t *c)
{
	if (RS_LIKELY(rs_guard_signals_quickly(c, true))) {
		RS_NO_REGISTERS();
		return 0;
	}
	JUMP rs_cond_broadcast_slowly(c);
}
RS_EXPORT int pthread_cond_signal(pthread_cond_t *c)
{
	if (RS_UNLIKELY(rs_guard_on))
		JUMP signal_guarded(c);
	JUMP signal_any(c);
}
RS_EXPORT int pthread_cond_broadcast(pthread_cond_t *c)
{
	if (RS_UNLIKELY(rs_guard_on))
		JUMP broadcast_guarded(c);
	JUMP broadcast_any(c);
}
RS_EXPORT int pthread_cond_wait(pthread_cond_t *c, pthread_mutex_t *m) { return rs_cond_wait(c, m, -1, NULL, RS_SITE); }

RS_EXPORT int pthread_cond_timedwait(pthread_cond_t *c, pthread_mutex_t *m, const struct timespec *abstime)
{
	return rs_cond_wait(c, m, -1, abstime, RS_SITE);
}

RS_EXPORT int pthread_cond_clockwait(pthread_cond_t *c, pthread_mutex_t *m, clockid_t clock, const struct timespec *abstime)
{
	return clock < 0 ? REAL(pthread_cond_clockwait)(c, m, clock, abstime) : rs_cond_wait(c, m, clock, abstime, RS_SITE);
}
