/* mutex.c: POSIX mutexes (and through c11.c, C11's).
 *
 * The quick path takes and gives back a free, private, normal, recursive or adaptive mutex itself, with the bookkeeping of glibc (nptl:
 * __lock 0 free, 1 taken, 2 taken with waiters; __owner the tid, __nusers the holders, __count how often a recursive one), because a call of
 * the real function would cost as much again.
 * rs_mutex_verify looks at process start whether the glibc at hand does the same, in both directions; if not, every call goes
 * to glibc. Everything else always goes to glibc: try first, announce, block.
 *
 * Why the misuse checks cannot be wrong is said at each. They rest on one property of glibc's mutexes: __owner is written by the
 * thread that just took the mutex, with its own tid, and cleared by whoever gives it up, before __lock is. So `__owner == my tid`
 * means that this thread took it, and a thread that holds it finds its tid there. (Lock elision keeps no owner: such kinds are left
 * alone.) Another's tid proves little by itself — it may be another process's, or be from before a fork — so a misuse that names
 * another owner also needs that thread's held list to agree (rs_sync_holder).
 */
#include "guardquick.h"
#include "guardsync.h"
#include "guardwant.h"
#include "mutexquick.h"
#include "opened.h"
#include "sync.h"

enum { KNOWN = TYPE | ROBUST | INHERIT | PROTECT | PSHARED | ELISION | NO_ELISION, DESTROYED = -1, TID_MASK = 0x3fffffff };
/* Kinds whose __owner and __lock can be read as said above: private, neither robust nor with a protocol nor elided. */
#define PLAIN(kind) (((kind) & ~(TYPE | NO_ELISION)) == 0)

static inline int kind_of(const pthread_mutex_t *m) { return __atomic_load_n(&m->__data.__kind, __ATOMIC_RELAXED); }
static inline int lock_of(const pthread_mutex_t *m) { return __atomic_load_n(&m->__data.__lock, __ATOMIC_RELAXED); }
static inline uint32_t owner_of(const pthread_mutex_t *m) { return (uint32_t)__atomic_load_n(&m->__data.__owner, __ATOMIC_RELAXED); }

unsigned rs_mutex_flags(uintptr_t obj)
{
	int kind = kind_of((const pthread_mutex_t *)obj);
	unsigned f = 0;
	if (kind & ~KNOWN)
		return 0;
	switch (kind & TYPE) {
	case RECURSIVE: f |= RS_OBJ_FLAG_RECURSIVE; break;
	case ERRORCHECK: f |= RS_OBJ_FLAG_ERRORCHECK; break;
	case ADAPTIVE: f |= RS_OBJ_FLAG_ADAPTIVE; break;
	}
	if (kind & ROBUST) /* glibc sets PSHARED on every robust mutex; whether it is shared, only init knows */
		f |= RS_OBJ_FLAG_ROBUST;
	else if (kind & PSHARED)
		f |= RS_OBJ_FLAG_PSHARED;
	if (kind & INHERIT)
		f |= RS_OBJ_FLAG_PI;
	if (kind & PROTECT)
		f |= RS_OBJ_FLAG_PP;
	return f;
}

/* robust mutexes keep the tid in __lock; the others in __owner, and __lock is not 0 while held */
bool rs_mutex_owned(const struct rs_thread *t, const pthread_mutex_t *m)
{
	int kind = kind_of(m);
	if (kind & ~KNOWN || kind & ELISION)
		return false;
	if (kind & (ROBUST | INHERIT))
		return ((uint32_t)lock_of(m) & TID_MASK) == t->tid;
	return owner_of(m) == t->tid && lock_of(m) != 0;
}

/* Taken more than once by this thread, so that the next unlock does not give it up. */
bool rs_mutex_recursive_inner(const struct rs_thread *t, const pthread_mutex_t *m)
{
	int kind = kind_of(m);
	return (kind & ~KNOWN) == 0 && (kind & TYPE) == RECURSIVE && rs_mutex_owned(t, m) && m->__data.__count > 1;
}

/* --- the quick path --------------------------------------------------------------------------------------------------------------- */

static bool verify(struct rs_thread *t, pthread_mutex_t *m)
{
	const pthread_mutex_t free_one = *m;
	const struct __pthread_mutex_s *d = &m->__data, *f = &free_one.__data;
	int kind = d->__kind;
	bool good = true, recursive = QUICK_RECURSIVE(kind);
	for (int round = 0; round < 16 && good; round++) {
		if (round & 1)
			good = quick_take(m, t->tid);
		else
			good = REAL(pthread_mutex_lock)(m) == 0;
		if (recursive && round & 1)
			m->__data.__count = 1;
		/* With elision forced by a tunable, the real one has changed the kind. */
		good = good && d->__lock == 1 && (uint32_t)d->__owner == t->tid && d->__nusers == 1 && d->__kind == kind && d->__count == recursive;
		if (recursive) {
			good = good && (round & 4 ? quick_again(m, t->tid) : REAL(pthread_mutex_lock)(m) == 0);
			good = good && d->__lock == 1 && (uint32_t)d->__owner == t->tid && d->__nusers == 1 && d->__kind == kind && d->__count == 2;
			good = good && (round & 8 ? quick_back(m, t->tid) : REAL(pthread_mutex_unlock)(m) == 0);
			good = good && d->__lock == 1 && (uint32_t)d->__owner == t->tid && d->__nusers == 1 && d->__kind == kind && d->__count == 1;
		} else {
			good = good && REAL(pthread_mutex_trylock)(m) == EBUSY;
		}
		if (round & 2) {
			if (recursive)
				m->__data.__count = 0;
			quick_give(m);
		} else {
			good = REAL(pthread_mutex_unlock)(m) == 0 && good;
		}
		good = good && d->__lock == f->__lock && d->__owner == 0 && d->__nusers == 0 && d->__kind == kind && d->__spins == 0 && d->__count == 0;
	}
	return good;
}

bool rs_mutex_verify(struct rs_thread *t)
{
	/* Nobody else sees them: the caller runs once. */
	static pthread_mutex_t normal = PTHREAD_MUTEX_INITIALIZER, recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
			       adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
	return verify(t, &normal) && verify(t, &recursive) && verify(t, &adaptive);
}

/* --- misuse --------------------------------------------------------------------------------------------------------------------------- */

/* After EINVAL. The type switch of glibc refuses exactly the kinds that no initialiser makes, so the bytes are not a mutex. That it
 * once was one and was destroyed we say only if we saw the destroy and nothing was made there since (object.c). */
static void check_kind(struct rs_thread *t, pthread_mutex_t *m, int result, uint32_t stack)
{
	int kind = kind_of(m);
	uint32_t where = 0;
	if (kind == DESTROYED && rs_object_destroyed((uintptr_t)m, RS_OBJECT_MUTEX, &where))
		rs_misuse(t, (uintptr_t)m, RS_OBJECT_MUTEX, RS_MISUSE_USE_AFTER_DESTROY, result, stack, where, 0, 0);
	else if (kind & ~KNOWN)
		rs_misuse(t, (uintptr_t)m, RS_OBJECT_MUTEX, RS_MISUSE_USE_BEFORE_INIT, result, stack, 0, (uint32_t)kind, 0);
}

/* Before the unlock of a mutex that the held list does not show. Private mutexes of the normal, adaptive and recursive types only, with priority inheritance or
 * without; of those with it the kernel lets nobody else's go, and what glibc did by then is undefined:
 * - errorcheck and robust ones tell the program themselves, and it may well ask on purpose;
 * - a child of fork that unlocks what its parent's thread took has it on its (inherited) held list;
 * - taken before we were there: then __owner is our tid.
 * Not ours by __owner, then: either it is free (certain: were it ours, it would be taken), or another thread's, which must agree. */
static void check_unlock(struct rs_thread *t, pthread_mutex_t *m, uint32_t stack)
{
	struct rs_sync_state *s = rs_sync_of(t);
	int kind = kind_of(m);
	bool inherits = kind & INHERIT;
	uint32_t owner = inherits ? (uint32_t)lock_of(m) & TID_MASK : owner_of(m);
	if (!PLAIN(kind & ~INHERIT) || (kind & TYPE) == ERRORCHECK || owner == t->tid || (s && s->held_lost))
		return;
	int result = inherits || (kind & TYPE) == RECURSIVE ? EPERM : 0;
	if (owner == 0 && (inherits || lock_of(m) == 0)) {
		rs_misuse(t, (uintptr_t)m, RS_OBJECT_MUTEX, RS_MISUSE_UNLOCK_NOT_LOCKED, result, stack, 0, 0, 0);
		return;
	}
	struct rs_sync_state *o = owner ? rs_sync_holder(owner, (uintptr_t)m) : NULL;
	if (!o || o->thread == t)
		return;
	rs_misuse(t, (uintptr_t)m, RS_OBJECT_MUTEX, RS_MISUSE_UNLOCK_NOT_OWNER, result, stack, rs_slot_held_stack(o->slot, (uintptr_t)m), owner, o->number);
	if (result == 0)
		rs_object_void((uintptr_t)m); /* it will be given up, and the owner's held list does not know */
}

/* --- taking ------------------------------------------------------------------------------------------------------------------------------ */

/* 0 and EOWNERDEAD: the mutex is taken. */
static inline bool took(int r) { return r == 0 || r == EOWNERDEAD; }

static void taken(struct rs_thread *t, pthread_mutex_t *m, unsigned how, uint32_t stack)
{
	rs_acquired(t, (uintptr_t)m, RS_OBJECT_MUTEX, RS_MODE_EXCLUSIVE, how, stack);
}

/* A recursive mutex that this thread holds was taken again, or its count is full. */
static void taken_again(struct rs_thread *t, pthread_mutex_t *m, int r, uint32_t stack)
{
	if (r == EAGAIN)
		rs_misuse(t, (uintptr_t)m, RS_OBJECT_MUTEX, RS_MISUSE_RECURSION_OVERFLOW, r, stack, rs_held_stack(t, (uintptr_t)m), m->__data.__count, 0);
	else if (r == 0 && rs_config.all) {
		rs_object_seen(t, (uintptr_t)m, RS_OBJECT_MUTEX);
		RS_EMIT(t, ACQUIRE, acquire, (uintptr_t)m, RS_OBJECT_MUTEX, RS_MODE_EXCLUSIVE, RS_HOW_RECURSIVE, stack);
	}
}

/* The owner's tid as it stands in the mutex, for `want`. */
static uint32_t owner_value(const pthread_mutex_t *m)
{
	int kind = kind_of(m);
	if (kind & ELISION)
		return 0;
	return kind & (ROBUST | INHERIT) ? (uint32_t)lock_of(m) & 0x3fffffff : owner_of(m);
}

enum { LOCK, TRYLOCK, TIMEDLOCK, CLOCKLOCK };

static inline int really(pthread_mutex_t *m, int op, int clock, const struct timespec *abstime)
{
	switch (op) {
	case LOCK: return REAL(pthread_mutex_lock)(m);
	case TIMEDLOCK: return REAL(pthread_mutex_timedlock)(m, abstime);
	case CLOCKLOCK: return REAL(pthread_mutex_clocklock)(m, clock, abstime);
	}
	return REAL(pthread_mutex_trylock)(m);
}

/* Takes it if that needs no wait; EBUSY if it does. A robust mutex is asked by a timeout before the epoch, because trylock of one that became
 * unrecoverable leaves it locked for good (glibc up to 2.36 at least), where lock and timedlock do not. */
static int try(pthread_mutex_t *m, int kind)
{
	static const struct timespec never = {-1, 0};
	if ((kind & (ROBUST | INHERIT)) != ROBUST)
		return REAL(pthread_mutex_trylock)(m);
	int r = REAL(pthread_mutex_timedlock)(m, &never);
	return r == ETIMEDOUT ? EBUSY : r;
}

static __attribute__((noinline)) int take(struct rs_thread *t, pthread_mutex_t *m, int op, int clock, const struct timespec *abstime, struct rs_site at)
{
	RS_OPENS();
	rs_sync_ready(t);
	t->slow = !__atomic_load_n(&rs_quick, __ATOMIC_ACQUIRE) || !t->held || rs_guard_on;
	int kind = kind_of(m);
	unsigned how = op == LOCK ? RS_HOW_BLOCK : op == TRYLOCK ? RS_HOW_TRY : RS_HOW_TIMED;
	if (op == CLOCKLOCK && !rs_valid_clock(clock))
		return really(m, op, clock, abstime); /* refused even when the mutex is free */
	bool mine = rs_mutex_owned(t, m);
	if (mine && (kind & TYPE) == RECURSIVE) {
		int r = really(m, op, clock, abstime);
		taken_again(t, m, r, rs_config.all || r ? rs_site_stack(t, at) : 0);
		return r;
	}
	if (mine && (kind & TYPE) == ERRORCHECK)
		return really(m, op, clock, abstime); /* EDEADLK or EBUSY: the program asked to be told */
	int r = op == TRYLOCK ? REAL(pthread_mutex_trylock)(m) : try(m, kind);
	if (took(r)) {
		rs_acquired_at(t, (uintptr_t)m, RS_OBJECT_MUTEX, RS_MODE_EXCLUSIVE, how, at);
		return r;
	}
	if (op == TRYLOCK) {
		if (r == EINVAL)
			check_kind(t, m, r, rs_site_stack(t, at));
		return r;
	}
	uint32_t stack = rs_site_stack(t, at);
	if (r != EBUSY) {
		/* What the real one makes of it is the result, but for a ceiling above the thread's policy: glibc notes the new priority before the
		 * kernel refuses it, so that a second attempt succeeds. */
		if (!(kind & PROTECT))
			r = really(m, op, clock, abstime);
		if (took(r))
			taken(t, m, how, stack);
		else if (r == EINVAL)
			check_kind(t, m, r, stack);
		return r;
	}
	/* This thread's own tid is in it, and a mutex of such a type does not return for its owner. With a timeout it does. */
	if (mine && op == LOCK)
		rs_misuse(t, (uintptr_t)m, RS_OBJECT_MUTEX, RS_MISUSE_RELOCK, 0, stack, rs_held_stack(t, (uintptr_t)m), 0, t->number);
	struct rs_pending w = {.obj = (uintptr_t)m, .kind = RS_OBJECT_MUTEX, .how = (uint8_t)how, .stack = stack, .value = owner_value(m)};
	rs_want(t, &w);
	r = really(m, op, clock, abstime);
	rs_want_end(t, &w, r == EOWNERDEAD ? 0 : r);
	if (took(r))
		taken(t, m, how, stack);
	return r;
}

/* Taken by the quick path; stack, held list and order as for any other. */
static inline __attribute__((always_inline)) int quick_taken(struct rs_thread *t, pthread_mutex_t *m, unsigned how, struct rs_site at)
{
	struct rs_sync_state *s = rs_sync_of(t);
	/* What rs_acquired_at does in most cases. */
	if (RS_LIKELY(t->quick == 0 && s && s->number == t->number && rs_moment_trusted(at.pc) && rs_moment_fits(t, 0, at))) {
		rs_moment_note(&s->moment[0], at);
		rs_held_first(t, (uintptr_t)m, RS_INFO(RS_STACK_LATER, RS_MODE_EXCLUSIVE, RS_OBJECT_MUTEX));
		if (RS_UNLIKELY(*(volatile uintptr_t *)&s->moment[0].rsp != (uintptr_t)at.fp + 16))
			rs_moment_again(t, s, 0, at);
		t->locks_taken++;
		return 0;
	}
	rs_acquired_at(t, (uintptr_t)m, RS_OBJECT_MUTEX, RS_MODE_EXCLUSIVE, how, at);
	return 0;
}

/* 1: taken and done; 0: taken, quick_taken has the rest; -1: not taken. */
static inline __attribute__((always_inline)) int quick_lock(struct rs_thread *t, pthread_mutex_t *m)
{
	if (RS_UNLIKELY(t == NULL || !rs_may_be_quick(t) || t->held_count >= t->held_cap))
		return -1;
	int kind = m->__data.__kind;
	if (RS_UNLIKELY(kind != 0)) {
		if (!QUICK(kind))
			return -1;
		if (quick_again(m, t->tid))
			return 1;
		if (!quick_take(m, t->tid))
			return -1;
		if (QUICK_RECURSIVE(kind))
			m->__data.__count = 1;
		return 0;
	}
	return quick_take(m, t->tid) ? 0 : -1;
}

static inline __attribute__((always_inline)) int lock(pthread_mutex_t *m, struct rs_site at)
{
	struct rs_thread *t = rs_thread_tls;
	int q = quick_lock(t, m);
	if (RS_LIKELY(q >= 0))
		return q ? 0 : quick_taken(t, m, RS_HOW_BLOCK, at);
	if (rs_guard_on && rs_guard_mutex_quick(m)) {
		RS_NO_REGISTERS();
		return 0;
	}
	RS_GUARDED(rs_guard_mutex_lock(m, RS_GUARD_LOCK, -1, NULL, RS_SITE_SP(at)));
	t = rs_self();
	return t ? take(t, m, LOCK, -1, NULL, at) : REAL(pthread_mutex_lock)(m);
}

int rs_mutex_lock(pthread_mutex_t *m, struct rs_site at) { return lock(m, at); }

int rs_mutex_trylock(pthread_mutex_t *m, struct rs_site at)
{
	struct rs_thread *t = rs_thread_tls;
	int q = quick_lock(t, m);
	if (q >= 0)
		return q > 0 ? 0 : quick_taken(t, m, RS_HOW_TRY, at);
	if (rs_guard_on && rs_guard_mutex_quick(m)) {
		RS_NO_REGISTERS();
		return 0;
	}
	RS_GUARDED(rs_guard_mutex_lock(m, RS_GUARD_TRY, -1, NULL, RS_SITE_SP(at)));
	t = rs_self();
	return t ? take(t, m, TRYLOCK, -1, NULL, at) : REAL(pthread_mutex_trylock)(m);
}

int rs_mutex_timedlock(pthread_mutex_t *m, int clock, const struct timespec *abstime, struct rs_site at)
{
	if (rs_valid_clock(clock))
		RS_GUARDED(rs_guard_mutex_lock(m, RS_GUARD_TIMED, clock, abstime, RS_SITE_SP(at)));
	struct rs_thread *t = rs_self();
	int op = clock < 0 ? TIMEDLOCK : CLOCKLOCK;
	return t ? take(t, m, op, clock, abstime, at) : really(m, op, clock, abstime);
}

/* --- giving back ----------------------------------------------------------------------------------------------------------------------------- */

static __attribute__((noinline)) int give_any(pthread_mutex_t *m, struct rs_site at)
{
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (!t)
		return REAL(pthread_mutex_unlock)(m);
	rs_sync_ready(t);
	int i = rs_held_find(t, (uintptr_t)m);
	bool inner = rs_mutex_recursive_inner(t, m);
	bool mine = i >= 0 || rs_mutex_owned(t, m);
	if (i < 0 && rs_config.misuse)
		check_unlock(t, m, rs_site_stack(t, at));
	/* The former owner died and nobody made the mutex consistent: this unlock makes it useless for good. By glibc's own mark, which
	 * only EOWNERDEAD sets and only pthread_mutex_consistent clears. */
	if (mine && !inner && kind_of(m) & ROBUST && owner_of(m) == 0x7fffffff)
		rs_misuse(t, (uintptr_t)m, RS_OBJECT_MUTEX, RS_MISUSE_OWNER_DIED, ENOTRECOVERABLE, rs_site_stack(t, at), rs_held_stack(t, (uintptr_t)m), 0, 0);
	if (mine)
		rs_releasing(t, (uintptr_t)m, RS_OBJECT_MUTEX, RS_MODE_EXCLUSIVE, inner ? RS_HOW_RECURSIVE : RS_HOW_BLOCK);
	int r = REAL(pthread_mutex_unlock)(m);
	/* The mutex may be gone from here on; only its address is used. */
	if (r == 0 && i >= 0 && !inner) {
		i = rs_held_find(t, (uintptr_t)m);
		if (i >= 0)
			rs_held_give(t, i, at);
	}
	if (r == EINVAL)
		check_kind(t, m, r, rs_site_stack(t, at));
	return r;
}

static int checked_unlock(pthread_mutex_t *m, struct rs_site at)
{
	rs_guard_check_unlock(m, RS_SITE_SP(at));
	return rs_guard_mutex_unlock(m);
}

static __attribute__((noinline)) int give(pthread_mutex_t *m, struct rs_site at)
{
	int quick = rs_guard_on ? rs_guard_mutex_quick_unlock(m) : 0;
	if (quick == RS_GUARD_GIVEN) {
		RS_NO_REGISTERS();
		return 0;
	}
	RS_GUARDED(quick == RS_GUARD_GIVEN_WAKE_ALL ? rs_guard_mutex_wake_all(m) : quick ? rs_guard_mutex_wake(m) : checked_unlock(m, at));
	return give_any(m, at);
}

/* As the end of quick_unlock, where the moment has something to say of its site. */
static __attribute__((noinline)) int judged_unlock(struct rs_thread *t, pthread_mutex_t *m, void *fp)
{
	uint32_t n = t->held_count;
	rs_moment_give(rs_sync_of(t), n - 1, t->held[n - 1].info, (uintptr_t)fp + 16);
	rs_held_count(t, n - 1);
	if (QUICK_RECURSIVE(m->__data.__kind))
		m->__data.__count = 0;
	quick_give(m);
	return 0;
}

/* The newest on the held list, a kind that the quick path takes, and ours by its own bytes; or one that stays ours. 1: given back; 0: judged_unlock will; -1: not so. */
static inline __attribute__((always_inline)) int quick_unlock(struct rs_thread *t, pthread_mutex_t *m, void *fp)
{
	uint32_t n;
	if (RS_UNLIKELY(t == NULL || !rs_may_be_quick(t) || (uint32_t)m->__data.__owner != t->tid))
		return -1;
	int kind = m->__data.__kind;
	if (RS_UNLIKELY(kind != 0)) {
		if (!QUICK(kind))
			return -1;
		if (quick_back(m, t->tid))
			return 1;
	}
	if (RS_UNLIKELY((n = t->held_count) == 0))
		return -1;
	const struct rs_held_slot *top = &t->held[n - 1];
	if (RS_UNLIKELY(top->obj != (uintptr_t)m))
		return -1;
	uint64_t info = top->info;
	if (RS_STACK_LATER == RS_INFO_STACK(info) ? RS_UNLIKELY(rs_moment_strays(&rs_sync_of(t)->moment[n - 1], (uintptr_t)fp + 16)) : (info & RS_INFO_TRIAL) != 0)
		return 0;
	rs_held_count(t, n - 1);
	if (RS_UNLIKELY(QUICK_RECURSIVE(kind)))
		m->__data.__count = 0;
	quick_give(m);
	return 1;
}

static inline __attribute__((always_inline)) int unlock(pthread_mutex_t *m, struct rs_site at)
{
	struct rs_thread *t = rs_thread_tls;
	int q = quick_unlock(t, m, at.fp);
	return RS_LIKELY(q > 0) ? 0 : q < 0 ? give(m, at) : judged_unlock(t, m, at.fp);
}

int rs_mutex_unlock(pthread_mutex_t *m, struct rs_site at) { return unlock(m, at); }

/* --- life ----------------------------------------------------------------------------------------------------------------------------------------- */

/* Before an init: the same memory holds a mutex that this thread has taken by its held list and by the mutex's own bytes (so it is
 * no leftover garbage), and not on its stack, where a frame may have been left by longjmp with a lock in it. Or another thread has. */
static void check_init(struct rs_thread *t, pthread_mutex_t *m, struct rs_site at)
{
	int i = rs_held_find(t, (uintptr_t)m);
	if (i >= 0 && PLAIN(kind_of(m)) && rs_mutex_owned(t, m) && !rs_on_own_stack(t, (uintptr_t)m)) {
		rs_misuse(t, (uintptr_t)m, RS_OBJECT_MUTEX, RS_MISUSE_REINIT_LOCKED, 0, rs_site_stack(t, at), rs_held_stack_at(t, (uint32_t)i), t->tid, t->number);
		return;
	}
	if (i >= 0 || rs_object_life(rs_object_find((uintptr_t)m)) != RS_LIFE_LIVE || !PLAIN(kind_of(m)) || lock_of(m) == 0)
		return;
	struct rs_sync_state *s = rs_sync_holder(owner_of(m), (uintptr_t)m);
	if (s && s->thread != t)
		rs_misuse(t, (uintptr_t)m, RS_OBJECT_MUTEX, RS_MISUSE_REINIT_LOCKED, 0, rs_site_stack(t, at), rs_slot_held_stack(s->slot, (uintptr_t)m), s->tid, s->number);
}

int rs_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *attr, unsigned flags, struct rs_site at)
{
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (!t)
		return REAL(pthread_mutex_init)(m, attr);
	rs_sync_ready(t);
	if (rs_config.misuse)
		check_init(t, m, at);
	int r = REAL(pthread_mutex_init)(m, attr);
	if (r == 0) {
		int shared = 0;
		flags |= rs_mutex_flags((uintptr_t)m) & ~(unsigned)RS_OBJ_FLAG_PSHARED;
		if (attr && REAL(pthread_mutexattr_getpshared)(attr, &shared) == 0 && shared)
			flags |= RS_OBJ_FLAG_PSHARED;
		rs_object_init(t, (uintptr_t)m, RS_OBJECT_MUTEX, flags, 0, rs_site_stack(t, at));
	}
	return r;
}

/* EBUSY: by __nusers somebody holds it or waits with it on a condition. Reported when we know who: by the owner's held list, or by
 * the announced wait. (After a fork the count may speak of threads that the child does not have: then nobody agrees.) */
static void check_destroy(struct rs_thread *t, pthread_mutex_t *m, int result, uint32_t stack)
{
	struct rs_sync_state *s;
	uint32_t owner = owner_of(m);
	if (lock_of(m) != 0 && owner != 0 && (s = rs_sync_holder(owner, (uintptr_t)m)) != NULL)
		rs_misuse(t, (uintptr_t)m, RS_OBJECT_MUTEX, RS_MISUSE_DESTROY_LOCKED, result, stack, rs_slot_held_stack(s->slot, (uintptr_t)m), owner, s->number);
	else if (rs_guard_on && PLAIN(kind_of(m)) && lock_of(m) != 0 && rs_guard_is_thread(owner))
		rs_misuse(t, (uintptr_t)m, RS_OBJECT_MUTEX, RS_MISUSE_DESTROY_LOCKED, result, stack, 0, owner, 0);
	else if ((s = rs_sync_waits_with((uintptr_t)m)) != NULL)
		rs_misuse(t, (uintptr_t)m, RS_OBJECT_MUTEX, RS_MISUSE_DESTROY_WAITED, result, stack, s->wait_stack, m->__data.__nusers, s->number);
}

int rs_mutex_destroy(pthread_mutex_t *m, struct rs_site at)
{
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (!t)
		return REAL(pthread_mutex_destroy)(m);
	rs_sync_ready(t);
	uint32_t where = 0;
	/* glibc destroys a destroyed mutex again without a word. */
	bool again = kind_of(m) == DESTROYED && rs_object_destroyed((uintptr_t)m, RS_OBJECT_MUTEX, &where);
	int r = REAL(pthread_mutex_destroy)(m);
	uint32_t stack = rs_site_stack(t, at);
	if (again)
		rs_misuse(t, (uintptr_t)m, RS_OBJECT_MUTEX, RS_MISUSE_USE_AFTER_DESTROY, r, stack, where, 0, 0);
	else if (r == EBUSY)
		check_destroy(t, m, r, stack);
	rs_object_destroy(t, (uintptr_t)m, RS_OBJECT_MUTEX, stack, r);
	return r;
}

/* --- interposed ------------------------------------------------------------------------------------------------------------------------------------------ */

/* The first lock of a thread and the giving back of its only one are most of all; these two have no frame. The others are reached by a jump. */
static APART int lock_any(pthread_mutex_t *m) { return lock(m, RS_SITE); }
static APART int lock_noting(pthread_mutex_t *m) { return quick_taken(rs_thread_tls, m, RS_HOW_BLOCK, RS_SITE); }
static APART int unlock_any(pthread_mutex_t *m) { return unlock(m, RS_SITE); }
/* While `guard` keeps a log. */
static APART int lock_kept(pthread_mutex_t *m, uintptr_t sp) { return rs_guard_mutex_lock(m, RS_GUARD_LOCK, -1, NULL, sp); }
static APART int unlock_kept(pthread_mutex_t *m, uintptr_t sp)
{
	rs_guard_check_unlock(m, sp);
	return rs_guard_mutex_unlock(m);
}
RS_GUARD_SLOWLY(pthread_mutex_t, rs_mutex_lock_slowly, lock_kept, lock_any);
RS_GUARD_SLOWLY(pthread_mutex_t, rs_mutex_unlock_slowly, unlock_kept, unlock_any);
RS_GUARD_SLOWLY(pthread_mutex_t, rs_mutex_wake_slowly, rs_guard_mutex_wake, unlock_any);
RS_GUARD_SLOWLY(pthread_mutex_t, rs_mutex_wake_all_slowly, rs_guard_mutex_wake_all, unlock_any);

/* Where in a line of 64 bytes it begins is a tenth of what a lock and unlock of a process with one thread take: 4.2 ns for 4.6 where that is the middle, as it is now. No attribute says that; `bench -only '^guard$' -programs '^lock-single$'` does, when something before it has changed. */
#define HALF_LINE __attribute__((aligned(32)))
RS_EXPORT HALF_LINE int pthread_mutex_lock(pthread_mutex_t *m)
{
	/* Here and not behind a jump: a jump more behind the program's own wrongly foreseen branches is a tenth of what this takes. */
	if (RS_LIKELY(rs_guard_mine != NULL)) {
		if (RS_UNLIKELY(!rs_guard_takes_quickly(m)))
			JUMP rs_mutex_lock_slowly(m);
		RS_NO_REGISTERS();
		return 0;
	}
	struct rs_thread *t = rs_thread_tls;
	if (RS_UNLIKELY(t == NULL || t->quick != 0 || m->__data.__kind != 0)) {
		if (rs_guard_on)
			JUMP rs_mutex_lock_slowly(m); /* it has no log yet */
		JUMP lock_any(m);
	}
	if (RS_LIKELY(rs_config.stack_depth)) {
		if (RS_LIKELY(quick_take(m, t->tid)))
			JUMP lock_noting(m);
		JUMP lock_any(m);
	}
	if (RS_UNLIKELY(!quick_take(m, t->tid)))
		JUMP lock_any(m);
	t->locks_taken++;
	rs_held_first(t, (uintptr_t)m, RS_INFO(0, RS_MODE_EXCLUSIVE, RS_OBJECT_MUTEX));
	return 0;
}

/* The only one that is held. */
static APART int unlock_held(pthread_mutex_t *m)
{
	struct rs_thread *t = rs_thread_tls;
	if (RS_UNLIKELY(t == NULL || t->quick != RS_QUICK_ONE || m->__data.__kind != 0 || (uint32_t)m->__data.__owner != t->tid || t->held->obj != (uintptr_t)m)) {
		if (rs_guard_on)
			JUMP rs_mutex_unlock_slowly(m);
		JUMP unlock_any(m);
	}
	uint64_t info = t->held->info;
	if (RS_STACK_LATER == RS_INFO_STACK(info) ? RS_UNLIKELY(rs_moment_strays(&rs_sync_of(t)->moment[0], (uintptr_t)__builtin_dwarf_cfa())) : (info & RS_INFO_TRIAL) != 0)
		JUMP unlock_any(m);
	rs_held_none(t);
	quick_give(m);
	return 0;
}

RS_EXPORT HALF_LINE int pthread_mutex_unlock(pthread_mutex_t *m)
{
	if (RS_LIKELY(rs_guard_mine != NULL)) {
		int quick = rs_guard_gives_quickly(m);
		if (RS_UNLIKELY(quick != RS_GUARD_GIVEN)) {
			if (quick == RS_GUARD_GIVEN_WAKE)
				JUMP rs_mutex_wake_slowly(m);
			if (quick == RS_GUARD_GIVEN_WAKE_ALL)
				JUMP rs_mutex_wake_all_slowly(m);
			JUMP rs_mutex_unlock_slowly(m);
		}
		RS_NO_REGISTERS();
		return 0;
	}
	JUMP unlock_held(m);
}
RS_EXPORT int pthread_mutex_trylock(pthread_mutex_t *m) { return rs_mutex_trylock(m, RS_SITE); }
RS_EXPORT int pthread_mutex_timedlock(pthread_mutex_t *m, const struct timespec *abstime) { return rs_mutex_timedlock(m, -1, abstime, RS_SITE); }

RS_EXPORT int pthread_mutex_clocklock(pthread_mutex_t *m, clockid_t clock, const struct timespec *abstime)
{
	if (RS_UNLIKELY(clock < 0)) /* refused, and -1 has a meaning here */
		return REAL(pthread_mutex_clocklock)(m, clock, abstime);
	return rs_mutex_timedlock(m, clock, abstime, RS_SITE);
}

RS_EXPORT int pthread_mutex_init(pthread_mutex_t *m, const pthread_mutexattr_t *attr) { return rs_mutex_init(m, attr, 0, RS_SITE); }
RS_EXPORT int pthread_mutex_destroy(pthread_mutex_t *m) { return rs_mutex_destroy(m, RS_SITE); }

RS_EXPORT int pthread_mutex_consistent(pthread_mutex_t *m)
{
	RS_OPENS();
	int r = REAL(pthread_mutex_consistent)(m);
	struct rs_thread *t = r == EINVAL ? rs_self() : NULL;
	if (t)
		check_kind(t, m, r, rs_site_stack(t, RS_SITE));
	return r;
}

/* Takes and gives back the mutex inside glibc without an owner: nothing that others could wait for longer than a moment. */
RS_EXPORT int pthread_mutex_setprioceiling(pthread_mutex_t *m, int ceiling, int *old)
{
	RS_OPENS();
	int r = REAL(pthread_mutex_setprioceiling)(m, ceiling, old);
	struct rs_thread *t = r == EINVAL ? rs_self() : NULL;
	if (t)
		check_kind(t, m, r, rs_site_stack(t, RS_SITE));
	return r;
}

/* glibc exports these names too, and old libraries call them. */
RS_OLD_NAME(__pthread_mutex_lock, pthread_mutex_lock, "GLIBC_2.2.5");
RS_OLD_NAME(__pthread_mutex_unlock, pthread_mutex_unlock, "GLIBC_2.2.5");
RS_OLD_NAME(__pthread_mutex_trylock, pthread_mutex_trylock, "GLIBC_2.2.5");
RS_OLD_NAME(__pthread_mutex_init, pthread_mutex_init, "GLIBC_2.2.5");
RS_OLD_NAME(__pthread_mutex_destroy, pthread_mutex_destroy, "GLIBC_2.2.5");
RS_OLD_NAME(pthread_mutex_consistent_np, pthread_mutex_consistent, "GLIBC_2.4");
