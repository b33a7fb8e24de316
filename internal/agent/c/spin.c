/* spin.c: POSIX spin locks. A word without an owner: 1 free, less taken (glibc on x86-64); what a thread holds, only its held list says. */
#include "guardrace.h"
#include "opened.h"
#include "sync.h"

/* Tries, each after a pause, before a wait is announced: some tens of microseconds, as long as a fair critical section might take. */
enum { SPINS = 2000 };

static inline int value_of(const pthread_spinlock_t *l) { return __atomic_load_n((const volatile int *)l, __ATOMIC_RELAXED); }

/* No static initialiser, and init clears what destroy noted. Shared ones are never noted: another process may make them anew. */
static void check_destroyed(struct rs_thread *t, pthread_spinlock_t *l, struct rs_site at)
{
	uint32_t where;
	if (rs_object_destroyed((uintptr_t)l, RS_OBJECT_SPIN, &where))
		rs_misuse(t, (uintptr_t)l, RS_OBJECT_SPIN, RS_MISUSE_USE_AFTER_DESTROY, 0, rs_site_stack(t, at), where, 0, 0);
}

RS_EXPORT int pthread_spin_lock(pthread_spinlock_t *l)
{
	RS_GUARDED(rs_guard_spin_lock(l, false, RS_SITE_SP(RS_SITE)));
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (!t)
		return REAL(pthread_spin_lock)(l);
	rs_sync_ready(t);
	check_destroyed(t, l, RS_SITE);
	int r = REAL(pthread_spin_trylock)(l);
	for (int i = 0; r == EBUSY && i < SPINS; i++) {
		__asm__ volatile("pause");
		if (value_of(l) > 0)
			r = REAL(pthread_spin_trylock)(l);
	}
	if (RS_LIKELY(r == 0)) {
		rs_acquired_at(t, (uintptr_t)l, RS_OBJECT_SPIN, RS_MODE_EXCLUSIVE, RS_HOW_BLOCK, RS_SITE);
		return 0;
	}
	uint32_t stack = rs_site_stack(t, RS_SITE);
	if (r == EBUSY) {
		/* Taken, this thread's list has it, and nobody else was ever seen to give it up or to hold it. */
		int i = rs_held_find(t, (uintptr_t)l);
		if (i >= 0 && !rs_object_has(rs_object_find((uintptr_t)l), RS_OBJ_VOID) && !rs_sync_other_holder(t, (uintptr_t)l))
			rs_misuse(t, (uintptr_t)l, RS_OBJECT_SPIN, RS_MISUSE_RELOCK, 0, stack, rs_held_stack_at(t, (uint32_t)i), 0, t->number);
		struct rs_pending w = {.obj = (uintptr_t)l, .kind = RS_OBJECT_SPIN, .stack = stack};
		rs_want(t, &w);
		r = REAL(pthread_spin_lock)(l);
		rs_want_end(t, &w, r);
	}
	if (r == 0)
		rs_acquired(t, (uintptr_t)l, RS_OBJECT_SPIN, RS_MODE_EXCLUSIVE, RS_HOW_BLOCK, stack);
	return r;
}

RS_EXPORT int pthread_spin_trylock(pthread_spinlock_t *l)
{
	RS_GUARDED(rs_guard_spin_lock(l, true, RS_SITE_SP(RS_SITE)));
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (t) {
		rs_sync_ready(t);
		check_destroyed(t, l, RS_SITE);
	}
	int r = REAL(pthread_spin_trylock)(l);
	if (t && r == 0)
		rs_acquired_at(t, (uintptr_t)l, RS_OBJECT_SPIN, RS_MODE_EXCLUSIVE, RS_HOW_TRY, RS_SITE);
	return r;
}

/* Not on this thread's list. Free: then nobody's, ours neither. Taken: only if another thread's list has it. A lock shared with other
 * processes cannot be told from a private one, but a free word is free, and the other thread is one of this process. */
static void check_unlock(struct rs_thread *t, pthread_spinlock_t *l, struct rs_site at)
{
	struct rs_sync_state *s = rs_sync_of(t);
	if (!s || s->held_lost || rs_object_has(rs_object_find((uintptr_t)l), RS_OBJ_VOID))
		return;
	if (value_of(l) == 1) {
		rs_misuse(t, (uintptr_t)l, RS_OBJECT_SPIN, RS_MISUSE_UNLOCK_NOT_LOCKED, 0, rs_site_stack(t, at), 0, 0, 0);
		return;
	}
	struct rs_sync_state *o = rs_sync_other_holder(t, (uintptr_t)l);
	if (!o)
		return;
	rs_misuse(t, (uintptr_t)l, RS_OBJECT_SPIN, RS_MISUSE_UNLOCK_NOT_OWNER, 0, rs_site_stack(t, at), rs_slot_held_stack(o->slot, (uintptr_t)l), o->tid, o->number);
	rs_object_void((uintptr_t)l);
}

RS_EXPORT int pthread_spin_unlock(pthread_spinlock_t *l)
{
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (!t)
		return REAL(pthread_spin_unlock)(l);
	rs_sync_ready(t);
	int i = rs_held_find(t, (uintptr_t)l);
	if (i >= 0) {
		rs_releasing(t, (uintptr_t)l, RS_OBJECT_SPIN, RS_MODE_EXCLUSIVE, RS_HOW_BLOCK);
		rs_held_give(t, i, RS_SITE);
	} else if (rs_config.misuse) {
		check_unlock(t, l, RS_SITE);
	}
	if (RS_UNLIKELY(rs_guard_on))
		RS_GUARD_GIVES((uintptr_t)l, false);
	return REAL(pthread_spin_unlock)(l);
}

RS_EXPORT int pthread_spin_init(pthread_spinlock_t *l, int shared)
{
	RS_OPENS();
	struct rs_thread *t = rs_self();
	int r = REAL(pthread_spin_init)(l, shared);
	if (t && r == 0) {
		rs_sync_ready(t);
		rs_object_init(t, (uintptr_t)l, RS_OBJECT_SPIN, shared ? RS_OBJ_FLAG_PSHARED : 0, 0, rs_site_stack(t, RS_SITE));
	}
	return r;
}

RS_EXPORT int pthread_spin_destroy(pthread_spinlock_t *l)
{
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (!t)
		return REAL(pthread_spin_destroy)(l);
	rs_sync_ready(t);
	uint32_t stack = rs_site_stack(t, RS_SITE);
	struct rs_sync_state *o;
	int i = rs_held_find(t, (uintptr_t)l);
	const struct rs_object *object = rs_object_find((uintptr_t)l);
	bool shared = object && object->state >> 16 & RS_OBJ_FLAG_PSHARED;
	if (rs_config.misuse && value_of(l) <= 0 && !rs_object_has(object, RS_OBJ_VOID)) {
		if (i >= 0)
			rs_misuse(t, (uintptr_t)l, RS_OBJECT_SPIN, RS_MISUSE_DESTROY_LOCKED, 0, stack, rs_held_stack_at(t, (uint32_t)i), t->tid, t->number);
		else if ((o = rs_sync_other_holder(t, (uintptr_t)l)) != NULL)
			rs_misuse(t, (uintptr_t)l, RS_OBJECT_SPIN, RS_MISUSE_DESTROY_LOCKED, 0, stack, rs_slot_held_stack(o->slot, (uintptr_t)l), o->tid, o->number);
	}
	int r = REAL(pthread_spin_destroy)(l);
	if (!shared)
		rs_object_destroy(t, (uintptr_t)l, RS_OBJECT_SPIN, stack, r);
	else
		RS_EMIT(t, DESTROY, destroy, (uintptr_t)l, RS_OBJECT_SPIN, stack, (uint32_t)r);
	return r;
}
