/* rwlock.c: POSIX read-write locks (std::shared_mutex, std::shared_timed_mutex on top of them).
 *
 * Read holds are counted in the thread's held list, because the object only counts all readers together. glibc keeps in
 * __cur_writer the tid of who holds it for writing, and in __readers>>3 how many hold it for reading or wait for that.
 */
#include "guardquick.h"
#include "guardsync.h"
#include "guardwant.h"
#include "rwlockquick.h"
#include "opened.h"
#include "sync.h"

enum { WRLOCKED = 2, READERS = 3 /* shift */ };
/* Left by our destroy in padding that no glibc uses and every initialiser, static ones too, clears: what makes a check for use after
 * destroy nearly free. It only counts together with the registry's word. */
#define MARK 0x52535f44u /* "D_SR" */

static inline uint32_t writer_of(const pthread_rwlock_t *rw) { return (uint32_t)__atomic_load_n(&rw->__data.__cur_writer, __ATOMIC_RELAXED); }
static inline uint32_t readers_of(const pthread_rwlock_t *rw) { return __atomic_load_n(&rw->__data.__readers, __ATOMIC_RELAXED); }

bool rs_rwlock_marked(const pthread_rwlock_t *rw) { return rw->__data.__pad3 == MARK && rw->__data.__pad4 == ~MARK; }

unsigned rs_rwlock_flags(uintptr_t obj)
{
	return ((const pthread_rwlock_t *)obj)->__data.__shared ? RS_OBJ_FLAG_PSHARED : 0;
}

uint32_t rs_rwlock_preference(uintptr_t obj)
{
	unsigned f = ((const pthread_rwlock_t *)obj)->__data.__flags;
	return f == PTHREAD_RWLOCK_PREFER_WRITER_NP ? 1 : f == PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP ? 2 : 0;
}

/* --- the quick path ----------------------------------------------------------------------------------------------------------------- */

static bool same(const pthread_rwlock_t *a, const pthread_rwlock_t *b)
{
	for (size_t i = 0; i < sizeof *a; i++)
		if (((const char *)a)[i] != ((const char *)b)[i])
			return false;
	return true;
}

/* The same done with two, by glibc's functions and by ours in turn: they are the same all the time. */
static bool verify(struct rs_thread *t, pthread_rwlock_t *rw, pthread_rwlock_t *quick)
{
	bool good = same(rw, quick);
	for (unsigned round = 0; round < 16 && good; round++) {
		bool write = round & 1, block = round & 2, mixed = round & 4; /* mixed: each gives back what the other took */
		good = (write ? block ? REAL(pthread_rwlock_wrlock)(rw) : REAL(pthread_rwlock_trywrlock)(rw) : block ? REAL(pthread_rwlock_rdlock)(rw) : REAL(pthread_rwlock_tryrdlock)(rw)) == 0;
		good = good && (write ? quick_write(quick, t->tid) : quick_read(quick)) && same(rw, quick);
		if (good && write) {
			good = (uint32_t)rw->__data.__cur_writer == t->tid && REAL(pthread_rwlock_tryrdlock)(quick) == EBUSY && !quick_read(rw) && !quick_write(rw, t->tid);
		} else if (good) {
			good = REAL(pthread_rwlock_trywrlock)(quick) == EBUSY && !quick_write(rw, t->tid);
			good = good && REAL(pthread_rwlock_rdlock)(rw) == 0 && quick_read(quick) && same(rw, quick);
			good = good && REAL(pthread_rwlock_unlock)(mixed ? quick : rw) == 0 && quick_read_back(mixed ? rw : quick) && same(rw, quick);
		}
		pthread_rwlock_t *by_glibc = mixed ? quick : rw, *by_us = mixed ? rw : quick;
		good = good && REAL(pthread_rwlock_unlock)(by_glibc) == 0 && (write ? quick_write_back(by_us) : quick_read_back(by_us)) && same(rw, quick);
	}
	return good;
}

bool rs_rwlock_verify(struct rs_thread *t)
{
	/* Nobody else sees them: the caller runs once. */
	static pthread_rwlock_t readers[2] = {PTHREAD_RWLOCK_INITIALIZER, PTHREAD_RWLOCK_INITIALIZER},
				writers[2] = {PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP, PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP};
	return verify(t, &readers[0], &readers[1]) && verify(t, &writers[0], &writers[1]);
}

/* --- misuse --------------------------------------------------------------------------------------------------------------------- */

/* Both must say so: the mark in the object, and that we saw this very address destroyed and nothing made there since. */
static void check_destroyed(struct rs_thread *t, pthread_rwlock_t *rw, struct rs_site at)
{
	uint32_t where;
	if (RS_UNLIKELY(rs_rwlock_marked(rw)) && rs_object_destroyed((uintptr_t)rw, RS_OBJECT_RWLOCK, &where))
		rs_misuse(t, (uintptr_t)rw, RS_OBJECT_RWLOCK, RS_MISUSE_USE_AFTER_DESTROY, 0, rs_site_stack(t, at), where, 0, 0);
}

/* Before an unlock of a private rwlock that is not on the held list. Every lock this thread ever took is on it (a forked child inherits
 * the list; held_lost says when it is incomplete), except what was taken before we knew the thread: a write hold then still has
 * our tid in it, and a read hold is only denied when nobody holds the lock at all, or when we see another holder and it is the only one. */
static void check_unlock(struct rs_thread *t, pthread_rwlock_t *rw, struct rs_site at)
{
	struct rs_sync_state *s = rs_sync_of(t);
	uint32_t writer = writer_of(rw), readers = readers_of(rw);
	if (rw->__data.__shared || writer == t->tid || !s || s->held_lost || rs_object_has(rs_object_find((uintptr_t)rw), RS_OBJ_VOID))
		return;
	if (writer == 0 && readers >> READERS == 0 && (readers & WRLOCKED) == 0) {
		rs_misuse(t, (uintptr_t)rw, RS_OBJECT_RWLOCK, RS_MISUSE_UNLOCK_NOT_LOCKED, 0, rs_site_stack(t, at), 0, 0, 0);
		return;
	}
	struct rs_sync_state *o = writer ? rs_sync_holder(writer, (uintptr_t)rw) : NULL;
	if (!o && writer == 0 && readers >> READERS == 1)
		o = rs_sync_other_holder(t, (uintptr_t)rw);
	if (!o || o->thread == t)
		return;
	rs_misuse(t, (uintptr_t)rw, RS_OBJECT_RWLOCK, RS_MISUSE_UNLOCK_READ_WRITE, 0, rs_site_stack(t, at), rs_slot_held_stack(o->slot, (uintptr_t)rw), writer, o->number);
	rs_object_void((uintptr_t)rw);
}

/* --- taking ------------------------------------------------------------------------------------------------------------------------ */

enum { LOCK, TIMED, CLOCK };

static inline int really(pthread_rwlock_t *rw, bool write, int op, int clock, const struct timespec *abstime)
{
	switch (op) {
	case LOCK: return write ? REAL(pthread_rwlock_wrlock)(rw) : REAL(pthread_rwlock_rdlock)(rw);
	case TIMED: return write ? REAL(pthread_rwlock_timedwrlock)(rw, abstime) : REAL(pthread_rwlock_timedrdlock)(rw, abstime);
	}
	return write ? REAL(pthread_rwlock_clockwrlock)(rw, clock, abstime) : REAL(pthread_rwlock_clockrdlock)(rw, clock, abstime);
}

static inline int try(pthread_rwlock_t *rw, bool write)
{
	return write ? REAL(pthread_rwlock_trywrlock)(rw) : REAL(pthread_rwlock_tryrdlock)(rw);
}

static int take(pthread_rwlock_t *rw, bool write, int op, int clock, const struct timespec *abstime, struct rs_site at)
{
	RS_GUARDED(rs_guard_rwlock_lock(rw, write, op == LOCK ? RS_GUARD_LOCK : RS_GUARD_TIMED, clock, abstime, RS_SITE_SP(at)));
	RS_OPENS();
	struct rs_thread *t = rs_self();
	unsigned mode = write ? RS_MODE_EXCLUSIVE : RS_MODE_SHARED;
	unsigned how = op == LOCK ? RS_HOW_BLOCK : RS_HOW_TIMED;
	if (!t)
		return really(rw, write, op, clock, abstime);
	rs_sync_ready(t);
	check_destroyed(t, rw, at);
	/* Unlike those of mutexes these look at the timeout even when the lock is free. */
	if (op != LOCK && (!rs_valid_timeout(abstime) || (op == CLOCK && !rs_valid_clock(clock))))
		return really(rw, write, op, clock, abstime);
	int r;
	if (writer_of(rw) == t->tid) {
		/* Only this thread writes its tid there: it holds the lock for writing. glibc answers EDEADLK. */
		r = really(rw, write, op, clock, abstime);
		if (r == EDEADLK)
			rs_misuse(t, (uintptr_t)rw, RS_OBJECT_RWLOCK, RS_MISUSE_RELOCK, r, rs_site_stack(t, at), rs_held_stack(t, (uintptr_t)rw), 0, t->number);
		return r;
	}
	r = try(rw, write);
	if (RS_LIKELY(r == 0)) {
		rs_acquired_at(t, (uintptr_t)rw, RS_OBJECT_RWLOCK, mode, how, at);
		return 0;
	}
	uint32_t stack = rs_site_stack(t, at);
	if (r == EBUSY) {
		/* For writing what it holds for reading: the read hold cannot end while the thread waits (unless another thread gives it
		 * up, which would be misuse and is remembered as VOID). */
		int i = write && op == LOCK ? rs_held_find(t, (uintptr_t)rw) : -1;
		if (i >= 0 && !rw->__data.__shared && readers_of(rw) >> READERS != 0 && !rs_object_has(rs_object_find((uintptr_t)rw), RS_OBJ_VOID))
			rs_misuse(t, (uintptr_t)rw, RS_OBJECT_RWLOCK, RS_MISUSE_RELOCK, 0, stack, rs_held_stack_at(t, (uint32_t)i), 0, t->number);
		struct rs_pending w = {.obj = (uintptr_t)rw, .kind = RS_OBJECT_RWLOCK, .mode = (uint8_t)mode, .how = (uint8_t)how, .stack = stack, .value = writer_of(rw)};
		rs_want(t, &w);
		r = really(rw, write, op, clock, abstime);
		rs_want_end(t, &w, r);
	} else {
		r = really(rw, write, op, clock, abstime);
	}
	if (r == 0)
		rs_acquired(t, (uintptr_t)rw, RS_OBJECT_RWLOCK, mode, how, stack);
	return r;
}

static int take_try(pthread_rwlock_t *rw, bool write, struct rs_site at)
{
	RS_GUARDED(rs_guard_rwlock_lock(rw, write, RS_GUARD_TRY, -1, NULL, RS_SITE_SP(at)));
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (t) {
		rs_sync_ready(t);
		check_destroyed(t, rw, at);
	}
	int r = try(rw, write);
	if (t && r == 0)
		rs_acquired_at(t, (uintptr_t)rw, RS_OBJECT_RWLOCK, write ? RS_MODE_EXCLUSIVE : RS_MODE_SHARED, RS_HOW_TRY, at);
	return r;
}

/* --- interposed ------------------------------------------------------------------------------------------------------------------------ */

static APART int rdlock_any(pthread_rwlock_t *rw) { return take(rw, false, LOCK, -1, NULL, RS_SITE); }
static APART int wrlock_any(pthread_rwlock_t *rw) { return take(rw, true, LOCK, -1, NULL, RS_SITE); }
/* While `guard` keeps a log. */
static APART int rdlock_kept(pthread_rwlock_t *rw, uintptr_t sp) { return rs_guard_rwlock_lock(rw, false, RS_GUARD_LOCK, -1, NULL, sp); }
static APART int wrlock_kept(pthread_rwlock_t *rw, uintptr_t sp) { return rs_guard_rwlock_lock(rw, true, RS_GUARD_LOCK, -1, NULL, sp); }
RS_GUARD_SLOWLY(pthread_rwlock_t, rs_rwlock_read_slowly, rdlock_kept, rdlock_any);
RS_GUARD_SLOWLY(pthread_rwlock_t, rs_rwlock_write_slowly, wrlock_kept, wrlock_any);
static APART int rdlock_guarded(pthread_rwlock_t *rw)
{
	if (RS_LIKELY(rs_guard_rwlock_quickly(rw, false))) {
		RS_NO_REGISTERS();
		return 0;
	}
	JUMP rs_rwlock_read_slowly(rw);
}
static APART int wrlock_guarded(pthread_rwlock_t *rw)
{
	if (RS_LIKELY(rs_guard_rwlock_quickly(rw, true))) {
		RS_NO_REGISTERS();
		return 0;
	}
	JUMP rs_rwlock_write_slowly(rw);
}
RS_EXPORT int pthread_rwlock_rdlock(pthread_rwlock_t *rw)
{
	if (RS_UNLIKELY(rs_guard_on))
		JUMP rdlock_guarded(rw);
	JUMP rdlock_any(rw);
}
RS_EXPORT int pthread_rwlock_wrlock(pthread_rwlock_t *rw)
{
	if (RS_UNLIKELY(rs_guard_on))
		JUMP wrlock_guarded(rw);
	JUMP wrlock_any(rw);
}
RS_EXPORT int pthread_rwlock_tryrdlock(pthread_rwlock_t *rw) { return take_try(rw, false, RS_SITE); }
RS_EXPORT int pthread_rwlock_trywrlock(pthread_rwlock_t *rw) { return take_try(rw, true, RS_SITE); }
RS_EXPORT int pthread_rwlock_timedrdlock(pthread_rwlock_t *rw, const struct timespec *abstime) { return take(rw, false, TIMED, -1, abstime, RS_SITE); }
RS_EXPORT int pthread_rwlock_timedwrlock(pthread_rwlock_t *rw, const struct timespec *abstime) { return take(rw, true, TIMED, -1, abstime, RS_SITE); }

RS_EXPORT int pthread_rwlock_clockrdlock(pthread_rwlock_t *rw, clockid_t clock, const struct timespec *abstime)
{
	return clock < 0 ? REAL(pthread_rwlock_clockrdlock)(rw, clock, abstime) : take(rw, false, CLOCK, clock, abstime, RS_SITE);
}

RS_EXPORT int pthread_rwlock_clockwrlock(pthread_rwlock_t *rw, clockid_t clock, const struct timespec *abstime)
{
	return clock < 0 ? REAL(pthread_rwlock_clockwrlock)(rw, clock, abstime) : take(rw, true, CLOCK, clock, abstime, RS_SITE);
}

static APART int unlock_any(pthread_rwlock_t *rw)
{
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (!t)
		return REAL(pthread_rwlock_unlock)(rw);
	rs_sync_ready(t);
	check_destroyed(t, rw, RS_SITE);
	int i = rs_held_find(t, (uintptr_t)rw);
	uint64_t info = i >= 0 ? t->held[i].info : 0;
	bool inner = RS_INFO_INNER(info) != 0;
	if (i >= 0)
		rs_releasing(t, (uintptr_t)rw, RS_OBJECT_RWLOCK, RS_INFO_MODE(info), inner ? RS_HOW_RECURSIVE : RS_HOW_BLOCK);
	else if (rs_config.misuse)
		check_unlock(t, rw, RS_SITE);
	if (i >= 0 && inner)
		t->held[i].info = info - RS_INFO_AGAIN;
	else if (i >= 0)
		rs_held_give(t, i, RS_SITE); /* before the fact: it cannot fail, and afterwards the memory may be another object's */
	return REAL(pthread_rwlock_unlock)(rw);
}

static APART int unlock_kept(pthread_rwlock_t *rw, uintptr_t sp)
{
	rs_guard_check_rwlock_unlock(rw, sp);
	return rs_guard_rwlock_unlock(rw);
}
RS_GUARD_SLOWLY(pthread_rwlock_t, rs_rwlock_unlock_slowly, unlock_kept, unlock_any);
RS_GUARD_SLOWLY(pthread_rwlock_t, rs_rwlock_wake_slowly, rs_guard_rwlock_wake, unlock_any);
static APART int unlock_guarded(pthread_rwlock_t *rw)
{
	int quick = rs_guard_rwlock_back_quickly(rw);
	if (RS_LIKELY(quick == RS_GUARD_GIVEN)) {
		RS_NO_REGISTERS();
		return 0;
	}
	if (quick == RS_GUARD_GIVEN_WAKE)
		JUMP rs_rwlock_wake_slowly(rw);
	JUMP rs_rwlock_unlock_slowly(rw);
}
RS_EXPORT int pthread_rwlock_unlock(pthread_rwlock_t *rw)
{
	if (RS_UNLIKELY(rs_guard_on))
		JUMP unlock_guarded(rw);
	JUMP unlock_any(rw);
}

RS_EXPORT int pthread_rwlock_init(pthread_rwlock_t *rw, const pthread_rwlockattr_t *attr)
{
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (!t)
		return REAL(pthread_rwlock_init)(rw, attr);
	rs_sync_ready(t);
	uint32_t stack = rs_site_stack(t, RS_SITE);
	int i = rs_held_find(t, (uintptr_t)rw);
	/* Its own bytes name this thread as the writer, so it is no leftover; on the stack a frame may have been left by longjmp. */
	if (i >= 0 && writer_of(rw) == t->tid && !rs_on_own_stack(t, (uintptr_t)rw))
		rs_misuse(t, (uintptr_t)rw, RS_OBJECT_RWLOCK, RS_MISUSE_REINIT_LOCKED, 0, stack, rs_held_stack_at(t, (uint32_t)i), t->tid, t->number);
	int r = REAL(pthread_rwlock_init)(rw, attr);
	if (r == 0)
		rs_object_init(t, (uintptr_t)rw, RS_OBJECT_RWLOCK, rs_rwlock_flags((uintptr_t)rw), rs_rwlock_preference((uintptr_t)rw), stack);
	return r;
}

/* A writer, or a reader, that is named by the object or by its own held list, and alive in this process. */
static void check_destroy(struct rs_thread *t, pthread_rwlock_t *rw, uint32_t stack)
{
	uint32_t writer = writer_of(rw), readers = readers_of(rw);
	uint32_t where = 0, other = 0, tid = 0;
	int i = rs_held_find(t, (uintptr_t)rw);
	struct rs_sync_state *o = NULL;
	if (rw->__data.__shared || rs_object_has(rs_object_find((uintptr_t)rw), RS_OBJ_VOID))
		return;
	if (i >= 0 && (writer == t->tid || (RS_INFO_MODE(t->held[i].info) == RS_MODE_SHARED && readers >> READERS != 0))) {
		where = rs_held_stack_at(t, (uint32_t)i), other = t->number, tid = t->tid;
	} else if (rs_guard_on && writer != 0 && rs_guard_is_thread(writer)) {
		tid = writer; /* Go knows who that is */
	} else {
		if (writer != 0)
			o = rs_sync_holder(writer, (uintptr_t)rw);
		else if (readers >> READERS != 0)
			o = rs_sync_other_holder(t, (uintptr_t)rw);
		if (!o)
			return;
		where = rs_slot_held_stack(o->slot, (uintptr_t)rw), other = o->number, tid = o->tid;
	}
	rs_misuse(t, (uintptr_t)rw, RS_OBJECT_RWLOCK, RS_MISUSE_DESTROY_LOCKED, 0, stack, where, tid, other);
}

RS_EXPORT int pthread_rwlock_destroy(pthread_rwlock_t *rw)
{
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (!t)
		return REAL(pthread_rwlock_destroy)(rw);
	rs_sync_ready(t);
	check_destroyed(t, rw, RS_SITE);
	uint32_t stack = rs_site_stack(t, RS_SITE);
	if (rs_config.misuse)
		check_destroy(t, rw, stack);
	bool shared = rw->__data.__shared;
	int r = REAL(pthread_rwlock_destroy)(rw);
	rs_object_destroy(t, (uintptr_t)rw, RS_OBJECT_RWLOCK, stack, r);
	if (r == 0 && !shared) { /* another process may make a shared one anew behind our back */
		rw->__data.__pad3 = MARK;
		rw->__data.__pad4 = ~MARK;
	}
	return r;
}

RS_OLD_NAME(__pthread_rwlock_init, pthread_rwlock_init, "GLIBC_2.2.5");
RS_OLD_NAME(__pthread_rwlock_destroy, pthread_rwlock_destroy, "GLIBC_2.2.5");
RS_OLD_NAME(__pthread_rwlock_rdlock, pthread_rwlock_rdlock, "GLIBC_2.2.5");
RS_OLD_NAME(__pthread_rwlock_wrlock, pthread_rwlock_wrlock, "GLIBC_2.2.5");
RS_OLD_NAME(__pthread_rwlock_tryrdlock, pthread_rwlock_tryrdlock, "GLIBC_2.2.5");
RS_OLD_NAME(__pthread_rwlock_trywrlock, pthread_rwlock_trywrlock, "GLIBC_2.2.5");
RS_OLD_NAME(__pthread_rwlock_unlock, pthread_rwlock_unlock, "GLIBC_2.2.5");
