/* join.c: joining, detaching, cancelling and naming threads. The handles that a program passes may be of threads that are long gone: what is
 * known of them comes from our own table, never from the memory that a pthread_t points to. */
#include "opened.h"
#include "core.h"
#include "guardlog.h"
#include "guardsync.h"
#include "guardthread.h"
#include "patch.h"
#include "sync.h"
#include "thread.h"
#include <errno.h>
#include <time.h>

/* The thread that a call is about, as it was when the call began. */
struct target {
	struct rs_handle *h;       /* NULL: not known */
	uint64_t handle;
	uint32_t number, state, settled_at;
};

static struct target look_up(uint64_t handle)
{
	struct target g = {.handle = handle};
	struct rs_handle_view v;
	/* The calling thread is alive, whatever we think we know of its handle. */
	if (rs_handle_read(handle, &v) && !(handle == pthread_self() && v.who & GONE))
		g = (struct target){v.where, handle, rs_who_number(v.who), rs_who_state(v.who), v.settled_at};
	return g;
}

static void settle(const struct target *g, uint32_t state, uint32_t stack)
{
	if (g->h)
		rs_handle_settle(g->h, g->number, state, 0, 0, stack);
}

/* A thread waits in a join of g, or does so no more: a second one must not. */
static void joining(const struct target *g, bool waits, uint32_t stack)
{
	if (g->h)
		rs_handle_settle(g->h, g->number, waits ? JOINING : 0, waits ? 0 : JOINING, DETACHED | JOINED, stack);
}

/* aux: 1 the thread was detached, 2 it was joined, or is. Sent before the call, which may not come back. */
static void misuse(struct rs_thread *t, const struct target *g, unsigned what, uint32_t stack)
{
	if (rs_config.misuse)
		RS_EMIT_URGENT(t, MISUSE, misuse, g->handle, RS_OBJECT_THREAD, (uint8_t)what, 0, stack, g->settled_at,
			       (g->state & (JOINED | JOINING)) ? 2 : (g->state & DETACHED) ? 1 : 0, g->number);
}

/* --- join ------------------------------------------------------------------------------------------------------------------------- */

struct join {
	struct rs_thread *t;
	struct target g;
	struct rs_wait before;
	uint32_t stack;
	uint8_t how;
	bool waits;
	bool first; /* nobody else was joining it */
};

static struct join join_begin(struct rs_thread *t, uint64_t handle, uint32_t stack, unsigned how)
{
	struct join j = {.t = t, .g = look_up(handle), .stack = stack, .how = (uint8_t)how};
	if (j.g.state & (JOINED | JOINING))
		misuse(t, &j.g, RS_MISUSE_DOUBLE_JOIN, stack);
	else if (j.g.state & DETACHED)
		misuse(t, &j.g, RS_MISUSE_JOIN_DETACHED, stack);
	else if (handle == pthread_self())
		misuse(t, &j.g, RS_MISUSE_JOIN_SELF, stack);
	return j;
}

/* May the thread be asked whether it has ended? Not if its memory may be gone. */
static bool join_may_try(const struct join *j) { return !(j->g.state & (JOINED | DETACHED)); }

/* It has sent its last event, and is on its way out: such a join is no deadlock. Asked for after rs_wait_begin, which counts the threads that live. */
static bool ended(const struct target *g)
{
	uint64_t who = g->h ? __atomic_load_n(&g->h->who, __ATOMIC_ACQUIRE) : 0;
	return rs_who_number(who) == g->number && who & ENDED;
}

static void join_wait(struct join *j)
{
	struct rs_thread *t = j->t;
	j->waits = true;
	j->first = !(j->g.state & (JOINED | JOINING | DETACHED));
	if (j->first)
		joining(&j->g, true, j->stack);
	j->before = rs_wait_begin(t, RS_OBJECT_THREAD, j->g.handle, j->stack);
	if (ended(&j->g))
		j->before.urgent = false;
	uint32_t n = t->held_count, most = (uint32_t)((t->mask[0] + 1) / 2 - RS_WANT_WORDS - 1) / 2;
	if (most > (RS_MAX_RECORD_WORDS - RS_WANT_WORDS) / 2)
		most = (RS_MAX_RECORD_WORDS - RS_WANT_WORDS) / 2;
	const struct rs_held_slot *held = t->held;
	if (n > most) {
		held += n - most;
		n = most;
	}
	uint64_t *w = rs_reserve(t, RS_EV_WANT, RS_WANT_WORDS + 2 * n);
	if (!w)
		return;
	rs_put_want(w, j->g.handle, RS_OBJECT_THREAD, RS_MODE_EXCLUSIVE, j->how, j->stack, j->g.number, 0, n);
	for (uint32_t i = 0; i < n; i++) {
		w[RS_WANT_WORDS + 2 * i] = held[i].obj;
		w[RS_WANT_WORDS + 2 * i + 1] = held[i].info;
	}
	if (j->before.urgent)
		rs_commit_urgent(t);
	else
		rs_commit(t);
}

static void join_waited(struct join *j, int result)
{
	rs_wait_end(j->t, &j->before);
	if (j->first && result != 0)
		joining(&j->g, false, 0);
	RS_EMIT(j->t, WANT_END, want_end, j->g.handle, (uint32_t)result);
}

/* pthread_cancel of the joining thread. */
static void join_cancelled(void *p) { join_waited(p, ECANCELED); }

static int join_end(struct join *j, int result)
{
	if (result == 0)
		settle(&j->g, JOINED, j->stack);
	RS_EMIT(j->t, THREAD_JOIN, thread_join, j->g.number, (uint32_t)result, j->how, j->stack);
	if (result == 0)
		rs_sync_new_segment(j->t);
	return result;
}

/* guard: the wait is its own, and what the real function then does is in an order. RS_GUARD_PASS: as without. */
static int guarded_join(struct join *j, pthread_t handle, void **value, int op, int clock, const struct timespec *until, uintptr_t sp)
{
	if (!rs_guard_on || !join_may_try(j) || j->g.state & JOINING || !rs_real.pthread_tryjoin_np || (op == RS_GUARD_TIMED && !rs_valid_timeout(until)))
		return RS_GUARD_PASS;
	int r = rs_guard_join(handle, RS_GUARD_TRY, clock, NULL, sp);
	if (r == EBUSY && op != RS_GUARD_TRY) {
		join_wait(j);
		pthread_cleanup_push(join_cancelled, j);
		r = rs_guard_join(handle, op, clock, until, sp);
		pthread_cleanup_pop(0);
		join_waited(j, r);
	}
	if (r != 0)
		return r;
	rs_guard_threads_lock(sp);
	struct rs_thread *t = j->t;
	struct rs_handle *outer = t->creates;
	t->creates = j->g.h;
	j->g.h = NULL;
	RS_GUARD_FORGET();
	r = rs_real.pthread_tryjoin_np(handle, value);
	j->g.h = t->creates;
	t->creates = outer;
	rs_guard_threads_unlock();
	return r;
}

/* glibc looks at cancellation only where it really waits: trying first changes nothing. A thread that joins itself is told so (EDEADLK) and does not
 * wait. */
static int try_first(struct join *j, pthread_t handle, void **value)
{
	if (handle == pthread_self())
		return rs_real.pthread_join(handle, value);
	if (!join_may_try(j) || !rs_real.pthread_tryjoin_np)
		return EBUSY;
	return rs_real.pthread_tryjoin_np(handle, value);
}

static __attribute__((noinline)) int join(pthread_t handle, void **value, struct rs_site at)
{
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (!t)
		return rs_real.pthread_join(handle, value);
	struct join j = join_begin(t, handle, rs_site_stack(t, at), RS_HOW_BLOCK);
	int r = guarded_join(&j, handle, value, RS_GUARD_LOCK, -1, NULL, RS_SITE_SP(at));
	if (r != RS_GUARD_PASS)
		return join_end(&j, r);
	r = try_first(&j, handle, value);
	if (r == EBUSY) {
		join_wait(&j);
		pthread_cleanup_push(join_cancelled, &j);
		r = rs_real.pthread_join(handle, value);
		pthread_cleanup_pop(0);
		join_waited(&j, r);
	}
	return join_end(&j, r);
}

RS_EXPORT int pthread_join(pthread_t handle, void **value)
{
	int r = join(handle, value, RS_SITE);
	RS_GUARD_FORGET();
	return r;
}

static __attribute__((noinline)) int try_join(pthread_t handle, void **value, struct rs_site at)
{
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (!t)
		return rs_real.pthread_tryjoin_np(handle, value);
	struct join j = join_begin(t, handle, rs_site_stack(t, at), RS_HOW_TRY);
	int r = guarded_join(&j, handle, value, RS_GUARD_TRY, -1, NULL, RS_SITE_SP(at));
	if (r == RS_GUARD_PASS)
		r = rs_real.pthread_tryjoin_np(handle, value);
	return r == EBUSY ? r : join_end(&j, r);
}

RS_EXPORT int pthread_tryjoin_np(pthread_t handle, void **value)
{
	int r = try_join(handle, value, RS_SITE);
	RS_GUARD_FORGET();
	return r;
}

static __attribute__((noinline)) int timed_join(pthread_t handle, void **value, const struct timespec *until, struct rs_site at)
{
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (!t)
		return rs_real.pthread_timedjoin_np(handle, value, until);
	struct join j = join_begin(t, handle, rs_site_stack(t, at), until ? RS_HOW_TIMED : RS_HOW_BLOCK);
	int r = guarded_join(&j, handle, value, until ? RS_GUARD_TIMED : RS_GUARD_LOCK, CLOCK_REALTIME, until, RS_SITE_SP(at));
	if (r != RS_GUARD_PASS)
		return join_end(&j, r);
	r = until ? EBUSY : try_first(&j, handle, value);
	if (r == EBUSY) {
		join_wait(&j);
		pthread_cleanup_push(join_cancelled, &j);
		r = rs_real.pthread_timedjoin_np(handle, value, until);
		pthread_cleanup_pop(0);
		join_waited(&j, r);
	}
	return join_end(&j, r);
}

RS_EXPORT int pthread_timedjoin_np(pthread_t handle, void **value, const struct timespec *until)
{
	int r = timed_join(handle, value, until, RS_SITE);
	RS_GUARD_FORGET();
	return r;
}

static __attribute__((noinline)) int clock_join(pthread_t handle, void **value, clockid_t clock, const struct timespec *until, struct rs_site at)
{
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (!t)
		return rs_real.pthread_clockjoin_np(handle, value, clock, until);
	struct join j = join_begin(t, handle, rs_site_stack(t, at), until ? RS_HOW_TIMED : RS_HOW_BLOCK);
	/* A bad clock or time is an error also when the thread has ended: no trying first. */
	int r = rs_valid_clock(clock) ? guarded_join(&j, handle, value, until ? RS_GUARD_TIMED : RS_GUARD_LOCK, clock, until, RS_SITE_SP(at)) : RS_GUARD_PASS;
	if (r != RS_GUARD_PASS)
		return join_end(&j, r);
	join_wait(&j);
	pthread_cleanup_push(join_cancelled, &j);
	r = rs_real.pthread_clockjoin_np(handle, value, clock, until);
	pthread_cleanup_pop(0);
	join_waited(&j, r);
	return join_end(&j, r);
}

RS_EXPORT int pthread_clockjoin_np(pthread_t handle, void **value, clockid_t clock, const struct timespec *until)
{
	int r = clock_join(handle, value, clock, until, RS_SITE);
	RS_GUARD_FORGET();
	return r;
}

static __attribute__((noinline)) int join_c11(thrd_t handle, int *value, struct rs_site at)
{
	RS_OPENS();
	struct rs_thread *t = rs_self();
	if (!t)
		return rs_real.thrd_join(handle, value);
	struct join j = join_begin(t, handle, rs_site_stack(t, at), RS_HOW_BLOCK);
	void *result = NULL;
	int r = guarded_join(&j, handle, &result, RS_GUARD_LOCK, -1, NULL, RS_SITE_SP(at)), c11 = thrd_success;
	bool guarded = r != RS_GUARD_PASS;
	if (!guarded)
		r = try_first(&j, handle, &result);
	if (guarded && r != 0)
		c11 = thrd_error;
	else if (r == EBUSY) {
		join_wait(&j);
		pthread_cleanup_push(join_cancelled, &j);
		c11 = rs_real.thrd_join(handle, value);
		pthread_cleanup_pop(0);
		r = c11 == thrd_success ? 0 : EINVAL;
		join_waited(&j, r);
	} else if (r == 0) {
		if (value)
			*value = (int)(intptr_t)result;
	} else
		c11 = rs_real.thrd_join(handle, value);
	join_end(&j, r);
	return c11;
}

RS_EXPORT int thrd_join(thrd_t handle, int *value)
{
	int r = join_c11(handle, value, RS_SITE);
	RS_GUARD_FORGET();
	return r;
}

/* --- detach, cancel, name ------------------------------------------------------------------------------------------------------------ */

static struct target detach_begin(struct rs_thread *t, uint64_t handle, uint32_t stack)
{
	struct target g = look_up(handle);
	if (g.state & (DETACHED | JOINED))
		misuse(t, &g, RS_MISUSE_DOUBLE_DETACH, stack);
	return g;
}

static void detach_end(struct rs_thread *t, const struct target *g, uint32_t stack, int result)
{
	if (result == 0 && !(g->state & (DETACHED | JOINED)))
		settle(g, DETACHED, stack);
	RS_EMIT(t, THREAD_DETACH, thread_detach, g->number, (uint32_t)result, stack);
}

static __attribute__((noinline)) int detach(pthread_t handle, struct rs_site at)
{
	struct rs_thread *t = rs_self();
	if (!t)
		return rs_real.pthread_detach(handle);
	uint32_t stack = rs_site_stack(t, at);
	struct target g = detach_begin(t, handle, stack);
	rs_guard_threads_lock(RS_SITE_SP(at));
	RS_GUARD_FORGET();
	int r = rs_real.pthread_detach(handle);
	rs_guard_threads_unlock();
	detach_end(t, &g, stack, r);
	return r;
}

RS_EXPORT int pthread_detach(pthread_t handle)
{
	int r = detach(handle, RS_SITE);
	RS_GUARD_FORGET();
	return r;
}

static __attribute__((noinline)) int detach_c11(thrd_t handle, struct rs_site at)
{
	struct rs_thread *t = rs_self();
	if (!t)
		return rs_real.thrd_detach(handle);
	uint32_t stack = rs_site_stack(t, at);
	struct target g = detach_begin(t, handle, stack);
	rs_guard_threads_lock(RS_SITE_SP(at));
	RS_GUARD_FORGET();
	int r = rs_real.thrd_detach(handle);
	rs_guard_threads_unlock();
	detach_end(t, &g, stack, r == thrd_success ? 0 : EINVAL);
	return r;
}

RS_EXPORT int thrd_detach(thrd_t handle)
{
	int r = detach_c11(handle, RS_SITE);
	RS_GUARD_FORGET();
	return r;
}

/* The event comes before the call: it is a release, and cancelling oneself may not return. Only a failure is sent afterwards. */
static __attribute__((noinline)) int cancel(pthread_t handle, struct rs_site at)
{
	struct rs_thread *t = rs_self();
	if (!t) {
		int r = rs_real.pthread_cancel(handle);
		if (r == 0)
			rs_guard_cancel((uint64_t)handle);
		return r;
	}
	rs_cancel_prepare();
	uint32_t stack = rs_site_stack(t, at), number = rs_thread_of(handle);
	RS_EMIT(t, THREAD_CANCEL, thread_cancel, number, 0, stack);
	int r = rs_real.pthread_cancel(handle);
	if (r == 0)
		rs_guard_cancel((uint64_t)handle);
	else
		RS_EMIT(t, THREAD_CANCEL, thread_cancel, number, (uint32_t)r, stack);
	return r;
}

RS_EXPORT int pthread_cancel(pthread_t handle)
{
	rs_sem_quick = 0; /* its waits look for a cancellation */
	rs_guard_out(RS_GUARD_LOST_THREAD);
	int r = cancel(handle, RS_SITE);
	rs_guard_in();
	return r;
}

RS_EXPORT int pthread_setname_np(pthread_t handle, const char *name)
{
	RS_OPENS();
	int r = rs_real.pthread_setname_np(handle, name);
	struct rs_thread *t = rs_self();
	if (!t || r != 0)
		return r;
	size_t n = rs_os_length(name);
	uint64_t *w = rs_reserve(t, RS_EV_THREAD_NAME, RS_THREAD_NAME_WORDS + (unsigned)(n + 7) / 8);
	if (w) {
		rs_put_thread_name(w, rs_thread_of(handle), n);
		rs_put_bytes(w + RS_THREAD_NAME_WORDS, name, n);
		rs_commit(t);
	}
	return r;
}
