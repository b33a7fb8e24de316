/* sem.c: semaphores, named and unnamed.
 *
 * A semaphore has no owner. In filtered mode one that began with 1 is taken for a lock (LOCKLIKE): who waited holds it, until it posts
 * it. The first post by a thread that does not hold it proves that it is none; then `sem-post` is sent once, the object is VOID,
 * and it vanishes from held lists as they are sent. So the usual hand-over from thread to thread costs one look into the registry
 * and no events, and the usual lock is seen with what was held around it. (That others may post a shared or named one, Go knows: such
 * a semaphore can be the gate of a lock order, and nothing else.)
 */
#include "core.h"
#include "guardquick.h"
#include "guardsync.h"
#include "semquick.h"
#include "opened.h"
#include "sync.h"
#include <fcntl.h>
#include <stdarg.h>

/* glibc's struct new_sem: the count in the low half, how many wait in the high one. */
static inline uint32_t count_of(const sem_t *sem) { return (uint32_t)__atomic_load_n((const uint64_t *)sem, __ATOMIC_RELAXED); }
static inline uint32_t waiters_of(const sem_t *sem) { return (uint32_t)(__atomic_load_n((const uint64_t *)sem, __ATOMIC_RELAXED) >> 32); }

/* No static initialiser, and init clears what destroy noted. Shared and named ones are never noted. */
static void check_destroyed(struct rs_thread *t, sem_t *sem, struct rs_site at)
{
	uint32_t where;
	if (rs_object_destroyed((uintptr_t)sem, RS_OBJECT_SEM, &where))
		rs_misuse(t, (uintptr_t)sem, RS_OBJECT_SEM, RS_MISUSE_USE_AFTER_DESTROY, 0, rs_site_stack(t, at), where, 0, 0);
}

static inline bool shared_object(const struct rs_object *o) { return o && (o->state >> 16 & (RS_OBJ_FLAG_PSHARED | RS_OBJ_FLAG_NAMED)); }
static inline bool is_lock(const struct rs_object *o) { return rs_object_has(o, RS_OBJ_LOCKLIKE) && !rs_object_has(o, RS_OBJ_VOID); }

/* Of a wait in a process with one thread. Nobody is told of it but where the semaphore is still held when there are others, and then its innermost frames must do: python3 takes some
 * 800 of them, 20 frames deep, before it runs a line of its program. */
static uint32_t lone_stack(struct rs_thread *t, struct rs_site at)
{
	enum { LONE_DEPTH = 6 };
	unsigned depth = rs_config.stack_depth;
	return depth ? rs_stack_from(t, at.pc, at.fp, depth < LONE_DEPTH ? depth : LONE_DEPTH) : 0;
}

static void waited(struct rs_thread *t, sem_t *sem, unsigned how, struct rs_site at, uint32_t stack)
{
	bool lock = !rs_config.all && is_lock(rs_object_find((uintptr_t)sem));
	if (!stack && lock && !__atomic_load_n(&rs_threaded, __ATOMIC_RELAXED))
		stack = lone_stack(t, at);
	else if (!stack && (rs_config.all || lock))
		stack = rs_site_stack(t, at);
	if (rs_config.all) {
		rs_object_seen(t, (uintptr_t)sem, RS_OBJECT_SEM);
		RS_EMIT(t, SEM_WAIT, sem_wait, (uintptr_t)sem, (uint8_t)how, stack);
	} else if (lock) {
		rs_acquired(t, (uintptr_t)sem, RS_OBJECT_SEM, RS_MODE_EXCLUSIVE, how, stack);
	}
}

/* --- the quick path ----------------------------------------------------------------------------------------------------------------- */

bool rs_sem_verify(void)
{
	sem_t sem = {{0}}, quick = {{0}};
	const rs_sem_word *a = (const rs_sem_word *)&sem, *b = (const rs_sem_word *)&quick;
	int kept = errno;
	bool good = sizeof sem >= 16 && REAL(sem_init)(&sem, 0, 1) == 0 && REAL(sem_init)(&quick, 0, 1) == 0;
	for (unsigned round = 0; round < 8 && good; round++) {
		bool mixed = round & 1;
		sem_t *by_glibc = mixed ? &quick : &sem, *by_us = mixed ? &sem : &quick;
		good = quick_sem_private(by_us) && quick_sem_open(by_us) && (uint32_t)a[0] == 1 + round / 4;
		good = good && (round & 2 ? REAL(sem_wait)(by_glibc) : REAL(sem_trywait)(by_glibc)) == 0 && quick_sem_take(by_us) && a[0] == b[0] && (uint32_t)a[1] == (uint32_t)b[1];
		good = good && (round >= 4 || (REAL(sem_trywait)(by_us) == -1 && !quick_sem_take(by_glibc)));
		for (unsigned posts = 0; posts < 1 + (round == 3) && good; posts++)
			good = REAL(sem_post)(by_us) == 0 && !quick_sem_post(by_glibc) && a[0] == b[0];
	}
	errno = kept;
	return good;
}

/* --- waiting ------------------------------------------------------------------------------------------------------------------------ */

enum { WAIT, TIMED, CLOCK };

static int really(sem_t *sem, int op, clockid_t clock, const struct timespec *abstime)
{
	switch (op) {
	case WAIT: return REAL(sem_wait)(sem);
	case TIMED: return REAL(sem_timedwait)(sem, abstime);
	}
	return REAL(sem_clockwait)(sem, clock, abstime);
}

static void cancelled(struct rs_thread *t, struct rs_guard *g) { rs_want_end(t, (struct rs_pending *)g, ECANCELED); }

static int wait_for(sem_t *sem, int op, clockid_t clock, const struct timespec *abstime, struct rs_site at)
{
	RS_GUARDED(rs_guard_sem_wait(sem, op == WAIT ? RS_GUARD_LOCK : RS_GUARD_TIMED, op == CLOCK ? clock : -1, abstime, RS_SITE_SP(at)));
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (!t || (op != WAIT && !rs_valid_timeout(abstime)) || (op == CLOCK && (clock < 0 || !rs_valid_clock(clock))))
		return really(sem, op, clock, abstime);
	rs_sync_ready(t);
	check_destroyed(t, sem, at);
	unsigned how = op == WAIT ? RS_HOW_BLOCK : RS_HOW_TIMED;
	/* A cancellation point even when it need not wait; the try is none. */
	REAL(pthread_testcancel)();
	int kept = errno;
	if (REAL(sem_trywait)(sem) == 0) {
		waited(t, sem, how, at, 0);
		return 0;
	}
	errno = kept;
	uint32_t stack = rs_site_stack(t, at);
	const struct rs_object *o = rs_object_find((uintptr_t)sem);
	struct rs_pending w = {.g = {.undo = cancelled}, .obj = (uintptr_t)sem, .kind = RS_OBJECT_SEM, .how = (uint8_t)how, .stack = stack,
		.value = o && !shared_object(o) ? (uint32_t)__atomic_load_n(&o->spare, __ATOMIC_RELAXED) : 0};
	rs_want(t, &w);
	int r = (int)rs_guarded((void (*)(void))really, (long)sem, op, clock, (long)abstime);
	rs_want_end(t, &w, r == 0 ? 0 : errno);
	if (r == 0)
		waited(t, sem, how, at, stack);
	return r;
}

static APART int wait_any(sem_t *sem) { return wait_for(sem, WAIT, 0, NULL, RS_SITE); }
/* While `guard` keeps a log. */
static APART int wait_kept(sem_t *sem, uintptr_t sp) { return rs_guard_sem_wait(sem, RS_GUARD_LOCK, -1, NULL, sp); }
RS_GUARD_SLOWLY(sem_t, rs_sem_wait_slowly, wait_kept, wait_any);
static APART int wait_guarded(sem_t *sem)
{
	if (RS_LIKELY(rs_guard_sem_quickly(sem))) {
		RS_NO_REGISTERS();
		return 0;
	}
	JUMP rs_sem_wait_slowly(sem);
}
RS_EXPORT int sem_wait(sem_t *sem)
{
	if (RS_UNLIKELY(rs_guard_on))
		JUMP wait_guarded(sem);
	JUMP wait_any(sem);
}
RS_EXPORT int sem_timedwait(sem_t *sem, const struct timespec *abstime) { return wait_for(sem, TIMED, 0, abstime, RS_SITE); }
RS_EXPORT int sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *abstime) { return wait_for(sem, CLOCK, clock, abstime, RS_SITE); }

static APART int try_any(sem_t *sem)
{
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (t) {
		rs_sync_ready(t);
		check_destroyed(t, sem, RS_SITE);
	}
	int r = REAL(sem_trywait)(sem);
	if (t && r == 0)
		waited(t, sem, RS_HOW_TRY, RS_SITE, 0);
	return r;
}

static APART int try_kept(sem_t *sem, uintptr_t sp) { return rs_guard_sem_wait(sem, RS_GUARD_TRY, -1, NULL, sp); }
RS_GUARD_SLOWLY(sem_t, rs_sem_try_slowly, try_kept, try_any);
static APART int try_guarded(sem_t *sem)
{
	if (RS_LIKELY(rs_guard_sem_quickly(sem))) {
		RS_NO_REGISTERS();
		return 0;
	}
	JUMP rs_sem_try_slowly(sem);
}
RS_EXPORT int sem_trywait(sem_t *sem)
{
	if (RS_UNLIKELY(rs_guard_on))
		JUMP try_guarded(sem);
	JUMP try_any(sem);
}

/* --- posting --------------------------------------------------------------------------------------------------------------------------- */

static void posting(struct rs_thread *t, sem_t *sem, struct rs_site at)
{
	struct rs_object *o = rs_object_find((uintptr_t)sem);
	bool tell = rs_config.all;
	if (!tell && is_lock(o)) {
		int i = rs_held_find(t, (uintptr_t)sem);
		if (i >= 0) {
			rs_held_remove(t, i);
			if (!shared_object(o)) /* a named one counts its openings there */
				__atomic_fetch_add(&o->spare, 1, __ATOMIC_RELAXED);
		} else {
			tell = !(__atomic_fetch_or(&o->extra, RS_OBJ_VOID, __ATOMIC_RELAXED) & RS_OBJ_VOID);
		}
	}
	if (tell) {
		rs_object_seen(t, (uintptr_t)sem, RS_OBJECT_SEM);
		uint32_t stack = rs_site_stack(t, at);
		RS_EMIT(t, SEM_POST, sem_post, (uintptr_t)sem, stack, count_of(sem) + 1);
	}
}

static APART int post_any(sem_t *sem)
{
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (t) {
		rs_sync_ready(t);
		check_destroyed(t, sem, RS_SITE);
		posting(t, sem, RS_SITE);
	}
	int r = REAL(sem_post)(sem);
	if (t && r != 0 && errno == EOVERFLOW) /* its count was at SEM_VALUE_MAX: the semaphore is still there */
		rs_misuse(t, (uintptr_t)sem, RS_OBJECT_SEM, RS_MISUSE_SEM_BAD_COUNT, EOVERFLOW, rs_site_stack(t, RS_SITE), 0, count_of(sem), 0);
	return r;
}

RS_GUARD_SLOWLY(sem_t, rs_sem_post_slowly, rs_guard_sem_post, post_any);
RS_GUARD_SLOWLY(sem_t, rs_sem_wake_slowly, rs_guard_sem_wake, post_any);
RS_GUARD_SLOWLY(sem_t, rs_sem_wake_all_slowly, rs_guard_sem_wake_all, post_any);
static APART int post_guarded(sem_t *sem)
{
	int quick = rs_guard_sem_post_quickly(sem);
	if (RS_LIKELY(quick == RS_GUARD_GIVEN)) {
		RS_NO_REGISTERS();
		return 0;
	}
	if (quick == RS_GUARD_GIVEN_WAKE)
		JUMP rs_sem_wake_slowly(sem);
	if (quick == RS_GUARD_GIVEN_WAKE_ALL)
		JUMP rs_sem_wake_all_slowly(sem);
	JUMP rs_sem_post_slowly(sem);
}
RS_EXPORT int sem_post(sem_t *sem)
{
	if (RS_UNLIKELY(rs_guard_on))
		JUMP post_guarded(sem);
	JUMP post_any(sem);
}

RS_EXPORT int sem_getvalue(sem_t *sem, int *value)
{
	RS_GUARDED(rs_guard_sem_value(sem, value, RS_SITE_SP(RS_SITE)));
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (t) {
		rs_sync_ready(t);
		check_destroyed(t, sem, RS_SITE);
	}
	return REAL(sem_getvalue)(sem, value);
}

/* --- life --------------------------------------------------------------------------------------------------------------------------------- */

RS_EXPORT int sem_init(sem_t *sem, int shared, unsigned value)
{
	RS_OPENS();
	struct rs_thread *t = rs_self();
	int r = REAL(sem_init)(sem, shared, value);
	if (!t)
		return r;
	rs_sync_ready(t);
	uint32_t stack = rs_site_stack(t, RS_SITE);
	if (r == 0) {
		struct rs_object *o = rs_object_init(t, (uintptr_t)sem, RS_OBJECT_SEM, shared ? RS_OBJ_FLAG_PSHARED : 0, value, stack);
		if (o) {
			__atomic_store_n(&o->spare, 0, __ATOMIC_RELAXED);
			if (value == 1)
				__atomic_fetch_or(&o->extra, RS_OBJ_LOCKLIKE, __ATOMIC_RELEASE);
		}
	} else if (errno == EINVAL && value > 0x7fffffff /* SEM_VALUE_MAX */) {
		rs_misuse(t, (uintptr_t)sem, RS_OBJECT_SEM, RS_MISUSE_SEM_BAD_COUNT, EINVAL, stack, 0, value, 0);
	}
	return r;
}

RS_EXPORT int sem_destroy(sem_t *sem)
{
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (!t)
		return REAL(sem_destroy)(sem);
	rs_sync_ready(t);
	check_destroyed(t, sem, RS_SITE);
	uint32_t stack = rs_site_stack(t, RS_SITE), n = waiters_of(sem);
	const struct rs_object *o = rs_object_find((uintptr_t)sem);
	bool shared = shared_object(o);
	/* glibc counts waiters and has no token for them, and a thread of this process shows its wait. With a token there, the waiter may be
	 * on its way out. */
	struct rs_sync_state *s = n > 0 && count_of(sem) == 0 && !shared ? rs_sync_waits_at((uintptr_t)sem) : NULL;
	if (s)
		rs_misuse(t, (uintptr_t)sem, RS_OBJECT_SEM, RS_MISUSE_DESTROY_WAITED, 0, stack, s->wait_stack, n, s->number);
	int r = REAL(sem_destroy)(sem);
	if (!shared)
		rs_object_destroy(t, (uintptr_t)sem, RS_OBJECT_SEM, stack, r);
	else
		RS_EMIT(t, DESTROY, destroy, (uintptr_t)sem, RS_OBJECT_SEM, stack, (uint32_t)r);
	return r;
}

/* Named: the address is the same for every open of a name, until all are closed. `spare` counts them. */
RS_EXPORT sem_t *sem_open(const char *name, int flags, ...)
{
	mode_t mode = 0;
	unsigned value = 0;
	if (flags & O_CREAT) {
		va_list ap;
		va_start(ap, flags);
		mode = va_arg(ap, mode_t);
		value = va_arg(ap, unsigned);
		va_end(ap);
	}
	sem_t *sem = REAL(sem_open)(name, flags, mode, value);
	struct rs_thread *t = sem != SEM_FAILED ? rs_self() : NULL;
	if (!t)
		return sem;
	rs_sync_ready(t);
	struct rs_object *o = rs_object_find((uintptr_t)sem);
	if (rs_object_life(o) != RS_LIFE_LIVE) {
		o = rs_object_init(t, (uintptr_t)sem, RS_OBJECT_SEM, RS_OBJ_FLAG_NAMED | RS_OBJ_FLAG_PSHARED, count_of(sem), rs_site_stack(t, RS_SITE));
		if (o) {
			__atomic_store_n(&o->spare, 0, __ATOMIC_RELAXED);
			if (count_of(sem) == 1)
				__atomic_fetch_or(&o->extra, RS_OBJ_LOCKLIKE, __ATOMIC_RELEASE);
		}
	}
	if (o)
		__atomic_fetch_add(&o->spare, 1, __ATOMIC_RELAXED);
	return sem;
}

RS_EXPORT int sem_close(sem_t *sem)
{
	struct rs_thread *t = rs_self();
	int r = REAL(sem_close)(sem);
	if (!t || r != 0)
		return r;
	struct rs_object *o = rs_object_find((uintptr_t)sem);
	if (o && __atomic_sub_fetch(&o->spare, 1, __ATOMIC_RELAXED) == 0) {
		rs_sync_ready(t);
		/* Unmapped by glibc: memory, and objects, that are gone. */
		rs_sync_memory_gone(t, (uintptr_t)sem, sizeof *sem, rs_site_stack(t, RS_SITE));
	}
	return r;
}
