/* guardepoch.c: epochs of `guard` in a session: how they begin and end. See guardlog.h, guard.h; docs/decisions.md, 42.
 *
 * An epoch that nobody asks to be executed again ends wherever its threads are (but in the middle of an event): the coordinator stops all, keeps a checkpoint, and lets them go. Only for a re-execution all come to an event, and stand.
 * What no epoch can follow (threads that are made or end, dlopen, fork, calls that are irrevocable) makes it one that is lost, and another begins soon behind it; how soon, what the ends have cost says.
 *
 * Ground rules: guard.h's. The upper part runs on threads of the program, perhaps in a hook: general registers only. */
#include "guardepoch.h"
#include "guardfault.h"
#include "guardfork.h"
#include "guardkept.h"
#include "guardsignal.h"
#include "guardstack.h"
#include "guardsys.h"
#include "alloc.h"
#include "guardsync.h"
#include "patch.h"
#include <errno.h>
#include <linux/futex.h>

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STORE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELEASE)

enum { USUAL_MS = 500 };
/* Where nobody maps anything unasked: a re-execution may need a mapping of ours earlier than the recording did, and it is not to take the place of one of the program's. */
#define PLACE 0x300000000000ul

/* --- on threads of the program ------------------------------------------------------------------------------------------------ */

/* The thread of this log, and not a vfork child of it, which has its memory. */
static bool is_self(const struct rs_guard_log *t) { return rs_os_tid() == t->tid; }

/* Who asks does not wait. Once an epoch is enough: what has lost one may come thousands of times before it ends. */
void rs_guard_poke_soon(void)
{
	struct rs_guard_world *w = rs_guard_world();
	uint32_t free = 0;
	if (__atomic_exchange_n(&w->soon, 1, __ATOMIC_ACQ_REL))
		return;
	if (__atomic_compare_exchange_n(rs_guard_request, &free, RS_GUARD_ASK_SOON, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		RS_SYS3(SYS_futex, rs_guard_request, FUTEX_WAKE, 1 << 30);
	else
		STORE(w->soon, 0);
}

/* Asks, and stands here until it is done: before the event `where` (object, kind). Who asks for a re-execution is not answered by another end that comes first. */
static long come(struct rs_guard_log *t, uint32_t what, uintptr_t object, unsigned kind)
{
	struct rs_guard_world *w = rs_guard_world();
	const uint32_t *done = what == RS_GUARD_ASK_AGAIN ? &w->answers : &w->verdicts;
	uint32_t seen = LOAD(*done);
	while (LOAD(*done) == seen) {
		uint32_t gate = LOAD(w->gate), mode = LOAD(w->mode), free = 0;
		if (mode == RS_GUARD_OFF)
			return -ENOSYS;
		if (rs_guard_signals(t, RS_GUARD_WHAT(object, kind)))
			continue;
		if (mode == RS_GUARD_REPLAY && rs_guard_next_at(t) < t->end)
			rs_guard_diverged(t, RS_GUARD_EVENT, t->event[rs_guard_next_at(t)].what, RS_GUARD_WHAT(object, kind));
		if (rs_guard_pause(t, object, kind) || mode == RS_GUARD_REPLAY)
			continue;
		if (__atomic_compare_exchange_n(rs_guard_request, &free, what, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) || free == what) {
			RS_SYS3(SYS_futex, rs_guard_request, FUTEX_WAKE, 1 << 30);
			rs_guard_stand(t, object, kind, gate);
		} else
			RS_SYS4(SYS_futex, rs_guard_request, FUTEX_WAIT, free, NULL);
	}
	return w->result;
}

static long again(uintptr_t object, unsigned kind, uintptr_t sp)
{
	struct rs_guard_log *t = rs_guard_self();
	if (!t || !rs_guard_world()->session || !rs_guard_mode() || t->outside || !is_self(t))
		return -ENOSYS;
	t->sp = sp;
	return come(t, RS_GUARD_ASK_AGAIN, object, kind);
}

long rs_guard_epoch_again(void) { return again(0, RS_GUARD_ASK, (uintptr_t)__builtin_frame_address(0) + 16); }

long rs_guard_epoch_again_before(unsigned number) { return again(number, RS_GUARD_CALL, (uintptr_t)__builtin_frame_address(0) + 16); }

void rs_guard_out(uint32_t why) { rs_guard_out_before(why, why, RS_GUARD_ASK); }

void rs_guard_out_before(uint32_t why, uintptr_t object, unsigned kind)
{
	struct rs_guard_log *t = rs_guard_on ? rs_guard_self() : NULL;
	struct rs_guard_world *w = rs_guard_world();
	if (RS_UNLIKELY(rs_guard_young))
		rs_guard_young_outside++;
	if (!t || !rs_guard_mode() || (!t->outside && !is_self(t)))
		return;
	if (t->outside++)
		return;
	t->outside = 0;
	if (!w->session) {
		rs_guard_lost(why);
		return;
	}
	if (kind != RS_GUARD_CALL)
		t->sp = (uintptr_t)__builtin_frame_address(0) + 16;
	for (;;) {
		if (rs_guard_signals(t, RS_GUARD_WHAT(object, kind)))
			continue;
		if (LOAD(w->mode) == RS_GUARD_REPLAY || (w->every && !LOAD(w->lost)))
			come(t, RS_GUARD_ASK_END, object, kind);
		/* A checkpoint from here on finds that it is outside. */
		t->outside_why = why;
		STORE(t->outside, 1);
		RS_BARRIER();
		if (LOAD(w->mode) != RS_GUARD_REPLAY)
			break;
		STORE(t->outside, 0);
	}
	rs_guard_lost(why);
}

void rs_guard_hold(void)
{
	struct rs_guard_world *w = rs_guard_world();
	__atomic_fetch_add(&w->holding, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&w->stopping, __ATOMIC_SEQ_CST))
		rs_os_wait(&w->stopping, 1, false, 10);
}

void rs_guard_unhold(void) { __atomic_fetch_sub(&rs_guard_world()->holding, 1, __ATOMIC_SEQ_CST); }

void rs_guard_in(void)
{
	struct rs_guard_log *t = rs_guard_on ? rs_guard_self() : NULL;
	if (RS_UNLIKELY(rs_guard_young_outside))
		rs_guard_young_outside--;
	if (!t || !t->outside)
		return;
	if (t->outside > 1) {
		t->outside--;
		return;
	}
	STORE(t->outside, 0);
	if (rs_guard_mode() && rs_guard_world()->session)
		rs_guard_poke_soon();
}

bool rs_guard_full(struct rs_guard_log *t, uintptr_t object, unsigned kind)
{
	struct rs_guard_world *w = rs_guard_world();
	if (!w->session || t->outside || rs_guard_mode() != RS_GUARD_RECORD)
		return false;
	uint32_t inner = t->inner, at = t->at, bytes = t->bytes_at;
	if (rs_guard_is_faulted(w) && rs_guard_fault_cuts(RS_GUARD_LOST_LOG)) {
		rs_guard_fault_again(t);
		return false;
	}
	if (!LOAD(w->lost)) {
		STORE(t->inner, 0);
		come(t, RS_GUARD_ASK_END, object, kind);
		/* It could not end, and nobody is to wait until it can. */
		if (t->at >= at && t->bytes_at >= bytes)
			rs_guard_lost(RS_GUARD_LOST_LOG);
		return true;
	}
	/* What nobody will execute again. In an event, so that no other epoch begins meanwhile. */
	STORE(t->inner, RS_GUARD_INNER);
	RS_BARRIER();
	if (LOAD(w->lost) && rs_guard_mode() == RS_GUARD_RECORD) {
		STORE(t->at, 0);
		t->bytes_at = 0;
	}
	STORE(t->inner, inner);
	rs_guard_poke_soon();
	return false;
}

void rs_guard_epoch_end(struct rs_guard_log *t, uintptr_t object, unsigned kind) { come(t, RS_GUARD_ASK_END, object, kind); }

bool rs_guard_end_before(struct rs_guard_log *t, uintptr_t object, unsigned kind)
{
	struct rs_guard_world *w = rs_guard_world();
	struct timespec now = {0};
	RS_SYS2(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
	if (!w->session || LOAD(w->lost) || rs_guard_is_faulted(w) || (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec < LOAD(w->soonest_ns))
		return false;
	come(t, RS_GUARD_ASK_END, object, kind);
	return true;
}

/* Tests look at the last epoch, too. */
void rs_guard_exit(void)
{
	struct rs_guard_log *t = rs_guard_on ? rs_guard_self() : NULL;
	if (t && rs_guard_mode() && rs_guard_world()->session && (rs_guard_world()->every || rs_guard_mode() == RS_GUARD_REPLAY) && !t->outside && is_self(t)) {
		t->sp = (uintptr_t)__builtin_frame_address(0) + 16;
		come(t, RS_GUARD_ASK_END, RS_GUARD_LOST_PROCESS, RS_GUARD_ASK);
	}
}

/* No epochs are recorded from here on, and who stands goes on. */
static void no_more(struct rs_guard_world *w, uint32_t why)
{
	rs_guard_lost(why);
	STORE(w->mode, RS_GUARD_OFF);
	rs_guard_no_quick();
	STORE(rs_counters->guard[0].state, 2);
	__atomic_fetch_add(&w->gate, 1, __ATOMIC_ACQ_REL);
	RS_SYS3(SYS_futex, &w->gate, FUTEX_WAKE_PRIVATE, INT32_MAX);
}

void rs_guard_stand_by(uint32_t gate)
{
	struct rs_guard_world *w = rs_guard_world();
	const struct timespec ts = {1, 0};
	if (RS_SYS4(SYS_futex, &w->gate, FUTEX_WAIT_PRIVATE, gate, &ts) != -ETIMEDOUT || LOAD(w->mode) != RS_GUARD_RECORD || rs_guard_coordinator_lives())
		return;
	no_more(w, RS_GUARD_LOST_MEMORY);
}

void rs_guard_off(void)
{
	struct rs_guard_world *w = rs_guard_world();
	if (!w || !LOAD(w->mode))
		return;
	no_more(w, RS_GUARD_LOST_CALL);
	rs_guard_kept_drop();
}

void rs_guard_close(void)
{
	struct rs_guard_world *w = rs_guard_world();
	if (!w->session || LOAD(w->mode) != RS_GUARD_RECORD)
		return;
	no_more(w, RS_GUARD_LOST_CALL);
	rs_guard_kept_epoch();
}

/* Calls, handlers and locks are the program's alone then. Where it has shut itself in nobody may ask the kernel for its alternate stack: there each act asks for a log, and finds none. */
void rs_guard_forget(void)
{
	if (!rs_guard_on || rs_sandboxed)
		return;
	rs_guard_stack_forget(); /* before it is off: a handler that still comes there is moved away */
	rs_guard_sys_forget();
	rs_guard_on = 0;
	rs_guard_mine = NULL; /* mutexes look at nothing else */
}

/* --- the beginning ---------------------------------------------------------------------------------------------------------------- */

/* What is not recorded, and why, is told in the report: standard error is the program's. */
static void begun(long r)
{
	struct rs_thread *t = rs_self();
	if (r == 0)
		return;
	STORE(rs_counters->guard[0].state, 2);
	if (t)
		rs_notice(t, RS_NOTICE_NO_EPOCHS, (int)-r, 0);
}

uint32_t rs_guard_epoch_ms(uint32_t word) { return word >> 8 ? word >> 8 : USUAL_MS; }

void rs_guard_session(void)
{
	uint32_t word = rs_config.guard;
	if (!(word & 1))
		return;
	rs_guard_sync_begin();
	rs_os_place(PLACE);
	if (rs_patch_put_off) {
		rs_guard_fork_put_off();
		return;
	}
	rs_guard_bind();
	begun(rs_guard_limited() ? -EDQUOT : rs_guard_begin_session(word & 2, word & 8, rs_guard_epoch_ms(word)));
}

void rs_guard_session_late(uint32_t outside)
{
	uint32_t word = rs_config.guard;
	long r = !rs_guard_alone() ? -EBUSY : rs_guard_limited() ? -EDQUOT : rs_guard_begin_session(word & 2, word & 8, rs_guard_epoch_ms(word));
	struct rs_guard_log *t = r == 0 ? rs_guard_self() : NULL;
	if (r < 0)
		rs_guard_undo();
	if (t && outside && rs_guard_mode() == RS_GUARD_RECORD) {
		t->outside_why = RS_GUARD_LOST_CALL;
		STORE(t->outside, outside);
		RS_BARRIER();
		rs_guard_lost(RS_GUARD_LOST_CALL);
	}
	begun(r);
}
