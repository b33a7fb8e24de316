/* barrier.c: POSIX barriers. Each arrival and each departure is an event; a wait is announced unless this is the thread that fills it. */
#include "guardsync.h"
#include "opened.h"
#include "sync.h"

/* glibc's struct pthread_barrier; pthread.h only has its size. */
struct barrier { uint32_t in, current_round, count; int32_t shared; uint32_t out; };
_Static_assert(sizeof(struct barrier) <= sizeof(pthread_barrier_t), "struct barrier");

static inline const struct barrier *inside(const pthread_barrier_t *b) { return (const struct barrier *)b; }

/* Threads that have arrived in a round that is not full. Whoever has returned from a wait has seen its round counted in
 * current_round, so that a barrier whose last round is over shows 0 to any thread that may know so. */
static uint32_t waiting(const pthread_barrier_t *b)
{
	uint32_t round = __atomic_load_n(&inside(b)->current_round, __ATOMIC_ACQUIRE);
	uint32_t in = __atomic_load_n(&inside(b)->in, __ATOMIC_ACQUIRE);
	uint32_t count = inside(b)->count;
	return in > round && count ? (in - round) % count : 0;
}

/* A barrier has no static initialiser, and its init clears what our destroy noted: so the registry's word is enough. */
static void check_destroyed(struct rs_thread *t, pthread_barrier_t *b, struct rs_site at)
{
	uint32_t where;
	if (rs_object_destroyed((uintptr_t)b, RS_OBJECT_BARRIER, &where) && inside(b)->shared == 0)
		rs_misuse(t, (uintptr_t)b, RS_OBJECT_BARRIER, RS_MISUSE_USE_AFTER_DESTROY, 0, rs_site_stack(t, at), where, 0, 0);
}

RS_EXPORT int pthread_barrier_init(pthread_barrier_t *b, const pthread_barrierattr_t *attr, unsigned count)
{
	RS_OPENS();
	struct rs_thread *t = rs_self();
	int r = REAL(pthread_barrier_init)(b, attr, count);
	if (!t)
		return r;
	rs_sync_ready(t);
	uint32_t stack = rs_site_stack(t, RS_SITE);
	if (r == 0) /* private is 0 inside of it, shared is not */
		rs_object_init(t, (uintptr_t)b, RS_OBJECT_BARRIER, inside(b)->shared ? RS_OBJ_FLAG_PSHARED : 0, count, stack);
	else if (r == EINVAL)
		rs_misuse(t, (uintptr_t)b, RS_OBJECT_BARRIER, RS_MISUSE_BARRIER_BAD_COUNT, r, stack, 0, count, 0);
	return r;
}

RS_EXPORT int pthread_barrier_wait(pthread_barrier_t *b)
{
	RS_GUARDED(rs_guard_barrier_wait(b, RS_SITE_SP(RS_SITE)));
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (!t)
		return REAL(pthread_barrier_wait)(b);
	rs_sync_ready(t);
	check_destroyed(t, b, RS_SITE);
	rs_object_seen(t, (uintptr_t)b, RS_OBJECT_BARRIER);
	uint32_t stack = rs_site_stack(t, RS_SITE), count = inside(b)->count;
	RS_EMIT(t, BARRIER_ARRIVE, barrier_arrive, (uintptr_t)b, count, stack);
	bool last = waiting(b) + 1 >= count;
	struct rs_pending w = {.obj = (uintptr_t)b, .kind = RS_OBJECT_BARRIER, .stack = stack, .value = count};
	if (!last)
		rs_want(t, &w);
	int r = REAL(pthread_barrier_wait)(b);
	if (!last)
		rs_want_end(t, &w, 0);
	RS_EMIT(t, BARRIER_LEAVE, barrier_leave, (uintptr_t)b, r == PTHREAD_BARRIER_SERIAL_THREAD);
	rs_sync_new_segment(t); /* it orders threads as create and join do */
	return r;
}

RS_EXPORT int pthread_barrier_destroy(pthread_barrier_t *b)
{
	if (RS_UNLIKELY(rs_guard_on))
		rs_guard_barrier_settle(b, RS_SITE_SP(RS_SITE));
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (!t)
		return REAL(pthread_barrier_destroy)(b);
	rs_sync_ready(t);
	check_destroyed(t, b, RS_SITE);
	uint32_t stack = rs_site_stack(t, RS_SITE), n = waiting(b);
	/* Before the fact: glibc may wait for them. The threads must be of this process: a forked child inherits the count. */
	if (n > 0 && inside(b)->shared == 0) {
		struct rs_sync_state *s = rs_sync_waits_at((uintptr_t)b);
		if (s)
			rs_misuse(t, (uintptr_t)b, RS_OBJECT_BARRIER, RS_MISUSE_BARRIER_DESTROY_IN_USE, 0, stack, s->wait_stack, n, s->number);
	}
	int r = REAL(pthread_barrier_destroy)(b);
	rs_object_destroy(t, (uintptr_t)b, RS_OBJECT_BARRIER, stack, r);
	return r;
}
