/* guardagain.c: an epoch's end, its re-execution, and the verdict. Coordinator only. See guardlog.h and guard.h.
 *
 * All threads stand before an event; what was written since the checkpoint is kept, and their frames; rollback; the same threads go on in mode REPLAY until each has done what its log says and stands before the same event; then memory is
 * compared. Several times if more bytes are to be watched than there are registers, or if it diverged. Not compared: what lies below each thread's stack pointer at its event, its alternate stack if it is not on it (frames of our stops lie
 * there), rseq's bytes, and guard's own slots. A re-execution is an excursion: memory, map and frames go forward to where the recording ended, whatever came of it, and the run goes on from there in a new epoch. */
#include "checkpoint.h"
#include "guarddebug.h"
#include "guardfault.h"
#include "guardkept.h"
#include "guardpage.h"
#include "guardrace.h"
#include "guardrseq.h"
#include "guardsignal.h"
#include "guardstack.h"
#include "guardstep.h"
#include "guardsys.h"
#include "guardthread.h"
#include "guardtry.h"
#include "guardwatch.h"
#include "guardyield.h"
#include "world.h"
#include <errno.h>
#include <linux/futex.h>

enum { MET_MS = 100 /* what others are given behind a fault, to come to an event */, END_MS = 10000, SESSION_END_MS = 300, EVERY_END_MS = 1000 /* where each epoch is to be executed again, which a machine that has no time for one of the threads must not undo */, STOP_MS = 10000, WAITING_MS = 3000, STALLED_MS = 3000, STALLED_TIMES = 20, UNSERVED_MS = 12000 /* more, where others have the processors */, TURNS_MS = 60000 /* likewise, of threads that yield by turns as they did in the recording */, YIELDS_TIMES = 5 /* ASTRAY_MS, where they yield */, ASTRAY_TIMES = 2 /* the processor's time that a thread had */, ASTRAY_MS = 1000 /* and that, since rollbacks make pages costly */, DIFFERS_MS = 300 /* it differs: what who comes to no event computes is nobody's */, RACES_MS = 30000 /* with all accesses judged, in all */, SKIPS = RS_GUARD_SKIPS };

static uint64_t now_ms(void)
{
	struct timespec ts = {0};
	RS_SYS2(SYS_clock_gettime, CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000u + (uint64_t)ts.tv_nsec / 1000000u;
}

static uint32_t state_of(const struct rs_guard_log *t) { return __atomic_load_n(&t->state, __ATOMIC_ACQUIRE); }

static struct rs_guard_log *log_of(uint32_t tid)
{
	for (uint32_t i = 0; i < rs_guard_world()->logs; i++)
		if (rs_guard_log(i)->tid == tid)
			return rs_guard_log(i);
	return NULL;
}

/* The hook's call has not been made, or was interrupted before it did anything: it is one of the next epoch. */
static bool to_be_made(const greg_t *g)
{
	uintptr_t pc = (uintptr_t)g[REG_RIP];
	return rs_hook_at_call(pc + 2) || (rs_hook_at_call(pc) && g[REG_RAX] == -EINTR);
}

const greg_t *rs_guard_stopped_at(const struct rs_world_thread *w)
{
	bool there = w->tid && !__atomic_load_n(&w->unborn, __ATOMIC_ACQUIRE) && (__atomic_load_n(&w->state, __ATOMIC_ACQUIRE) & 3) == RS_WORLD_STOPPED;
	return there ? w->uc->uc_mcontext.gregs : NULL;
}

/* Whom rs_guard_between found in an event, and how far it was. */
static struct { const struct rs_guard_log *log; uint32_t inner, at, state; } busy;

static bool is_busy(const struct rs_guard_log *t, uint32_t inner)
{
	busy.log = t;
	if (t)
		busy.inner = inner, busy.at = __atomic_load_n(&t->at, __ATOMIC_ACQUIRE), busy.state = state_of(t);
	return false;
}

static bool emits; /* the coordinator's, while it looks */
static void emits_here(struct rs_thread *t)
{
	struct rs_world_thread *w = t->emit_sp ? rs_world_of(t->tid) : NULL;
	const greg_t *g = w ? rs_guard_stopped_at(w) : NULL;
	emits |= g && rs_ring_emits(t, (uintptr_t)g[REG_RSP]);
}

bool rs_guard_between(void)
{
	struct rs_world_thread *w;
	emits = false;
	rs_region_each(emits_here);
	if (emits)
		return is_busy(NULL, 0);
	for (uint32_t i = 0; (w = rs_world_thread(i)); i++) {
		const struct rs_guard_log *t = w->tid ? log_of(w->tid) : NULL;
		uint32_t inner = t ? __atomic_load_n(&t->inner, __ATOMIC_ACQUIRE) : 0;
		if (inner == RS_GUARD_INNER && state_of(t) == RS_GUARD_RUNS)
			return is_busy(t, inner);
		const greg_t *g = rs_guard_stopped_at(w);
		if (g && (rs_guard_signal_arrives(g) || (inner == RS_GUARD_AT_CALL && !to_be_made(g))))
			return is_busy(t, inner);
	}
	return true;
}

void rs_guard_wait_between(void)
{
	enum { TIMES = 100 };
	const struct rs_guard_log *t = busy.log;
	for (unsigned i = 0; i < TIMES; i++) {
		struct timespec ts = {0, 20000};
		RS_SYS2(SYS_nanosleep, &ts, NULL);
		rs_guard_kept_answer();
		if (!t || __atomic_load_n(&t->inner, __ATOMIC_ACQUIRE) != busy.inner || __atomic_load_n(&t->at, __ATOMIC_ACQUIRE) != busy.at || state_of(t) != busy.state)
			break;
	}
}

static bool stands(const struct rs_guard_log *t)
{
	const struct rs_guard_world *w = rs_guard_world();
	uint32_t state = state_of(t);
	if (w->mode == RS_GUARD_REPLAY && w->to_fault)
		return state != RS_GUARD_RUNS && state != RS_GUARD_WAITS && (t->index + 1 != w->fault.who || rs_guard_try_crashed());
	if (state == RS_GUARD_UNBORN)
		return w->why != RS_GUARD_IDENTICAL; /* who was to make it has come to nothing */
	if (w->mode == RS_GUARD_REPLAY && w->why == RS_GUARD_IDENTICAL && (t->at != t->end || t->pending != t->pending_end || (state != RS_GUARD_ENDED && state != t->fin.state)))
		return false;
	return (state == RS_GUARD_ENDED && rs_guard_yield_stays(t)) || state == RS_GUARD_IN_CALL || state == RS_GUARD_KEPT;
}

/* How far all are; *run: so many do. */
static uint64_t progress(bool *all, unsigned *run)
{
	uint64_t sum = rs_guard_pages_stores();
	*all = true;
	*run = 0;
	for (uint32_t i = 0; i < rs_guard_world()->logs; i++) {
		const struct rs_guard_log *t = rs_guard_log(i);
		sum += (uint64_t)t->at << 32 | t->run;
		if (!t->tid || stands(t) || !rs_world_lives(t->tid))
			continue;
		*all = false;
		*run += state_of(t) == RS_GUARD_RUNS;
	}
	return sum;
}

/* Somebody has computed for far longer than in the recording: he waits for what will not come. It is no matter of how busy the machine is. */
static bool is_astray(unsigned times)
{
	if (rs_guard_world()->slower || rs_guard_watch_slows())
		return false;
	for (uint32_t i = 0; i < rs_guard_world()->logs; i++) {
		const struct rs_guard_log *t = rs_guard_log(i);
		if (t->tid && !stands(t) && state_of(t) == RS_GUARD_RUNS && rs_os_cpu_ns(t->tid) > t->cpu.again + ASTRAY_TIMES * t->cpu.took + times * ASTRAY_MS * 1000000ull)
			return true;
	}
	return false;
}

/* The process has computed for so long in so many ms, or there is no more time to be had on this machine. */
static bool has_had(uint64_t computed, uint64_t ms, uint64_t patience, unsigned run)
{
	return computed >= (run > 1 ? 2 : 1) * patience || ms > patience + UNSERVED_MS;
}

static uint64_t computed_ms(void)
{
	struct timespec ts = {0};
	RS_SYS2(SYS_clock_gettime, CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000u + (uint64_t)ts.tv_nsec / 1000000u;
}

/* World stopped. A call that was interrupted before it did anything will be made again. */
static bool all_stand(void)
{
	struct rs_world_thread *w;
	for (uint32_t i = 0; (w = rs_world_thread(i)); i++) {
		if (!w->tid)
			continue;
		const struct rs_guard_log *t = log_of(w->tid);
		if (!t || !stands(t) || t->inner == RS_GUARD_INNER)
			return false;
		const greg_t *g = rs_guard_stopped_at(w);
		if (!g)
			continue;
		if (rs_guard_signal_arrives(g) || rs_guard_call_moved(g))
			return false;
		if (state_of(t) == RS_GUARD_IN_CALL && !(w->call.in && ((uint64_t)g[REG_RIP] == w->call.pc - 2 || ((uint64_t)g[REG_RIP] == w->call.pc && g[REG_RAX] == -EINTR))))
			return false;
		/* The same call of the same thread, if there are more of them with nothing between. */
		const greg_t *end = w->end->uc.uc_mcontext.gregs;
		if (state_of(t) == RS_GUARD_IN_CALL && rs_guard_world()->mode == RS_GUARD_REPLAY && rs_guard_world()->why == RS_GUARD_IDENTICAL && !rs_guard_world()->slower && (g[REG_RSP] != end[REG_RSP] || g[REG_RDI] != end[REG_RDI]))
			return false;
	}
	return true;
}

/* Stops the world with everybody standing: 0. -EBUSY: not in time; -EAGAIN: rs_guard_put_off; a negative errno of the stop; then it runs. */
static long gather(void)
{
	struct rs_guard_world *w = rs_guard_world();
	uint64_t begun = now_ms(), moved = begun, computed = computed_ms(), turned = 0, turns, sum = 0, met = 0, recorded = begun - w->begun_ms, stalled = STALLED_MS + STALLED_TIMES * (w->session ? recorded : STALLED_MS);
	uint64_t most = !w->session ? END_MS : w->every ? EVERY_END_MS : SESSION_END_MS;
	for (;;) {
		bool all;
		unsigned run;
		uint32_t ended = __atomic_load_n(&w->ended, __ATOMIC_SEQ_CST);
		rs_guard_kick();
		rs_guard_step_poll();
		rs_guard_kept_answer();
		rs_guard_signals_late(now_ms() * 1000000u);
		uint64_t s = progress(&all, &run), now = now_ms();
		bool waiting = !run;
		if (s != sum) {
			sum = s;
			moved = now;
			computed = computed_ms();
			rs_guard_yields_left(&turned);
		}
		/* Up to a fault: what others do behind it is nobody's. */
		if (w->mode == RS_GUARD_REPLAY && w->to_fault && rs_guard_try_crashed()) {
			met = met ? met : now;
			if (waiting || now - met > MET_MS)
				return rs_world_stop(STOP_MS);
		} else if (all) {
			long r = rs_world_stop(STOP_MS);
			if (r < 0)
				return r;
			if (!rs_guard_put_off(w) && all_stand())
				return 0;
			rs_world_go();
		}
		if (rs_guard_put_off(w))
			return -EAGAIN;
		bool differs = w->mode == RS_GUARD_REPLAY && __atomic_load_n(&w->ending, __ATOMIC_ACQUIRE), late = w->slower ? now - begun > RACES_MS : rs_guard_try_long();
		uint64_t patience = (differs ? DIFFERS_MS : waiting ? WAITING_MS : stalled) * (waiting || differs ? 1 + w->slower : 1);
		/* Threads that look and yield by turns come to no event, and where others want the processors each of these turns takes theirs. */
		bool left = rs_guard_yields_left(&turns), yields = turns != turned && !differs;
		bool out = now - moved > patience && (yields ? now - moved > patience + (left ? TURNS_MS : UNSERVED_MS) : waiting || differs || has_had(computed_ms() - computed, now - moved, patience, run));
		if (w->mode == RS_GUARD_RECORD ? now - begun > most : late || out || (now - moved > STALLED_MS && is_astray(yields ? YIELDS_TIMES : 1))) {
			if (w->mode == RS_GUARD_RECORD || __atomic_load_n(&w->ending, __ATOMIC_ACQUIRE))
				return -EBUSY;
			rs_guard_diverged(NULL, RS_GUARD_STALLED, 0, 0);
			moved = now;
		}
		struct timespec ts = {0, 1000000};
		RS_SYS4(SYS_futex, &w->ended, FUTEX_WAIT_PRIVATE, ended, &ts);
	}
}

/* Of each thread's stack what lies below its stack pointer, or all of it (whole, where its end is known); and its alternate one. */
static unsigned skip_stacks(uint64_t *skip, unsigned n, bool whole)
{
	struct rs_world_thread *t;
	for (uint32_t i = 0; (t = rs_world_thread(i)) && n + 1 < SKIPS; i++) {
		const struct rs_guard_log *log = t->tid ? log_of(t->tid) : NULL;
		if (!log || !log->sp)
			continue;
		if (!whole && state_of(log) == RS_GUARD_KEPT && log->stack_lo)
			continue; /* cleared in both */
		uint64_t sp = log->under && rs_guard_stack_has(log->sp) ? log->under : log->sp;
		skip[2 * n] = rs_checkpoint_mapping(sp), skip[2 * n++ + 1] = whole && log->stack_hi > sp ? log->stack_hi : sp;
		const stack_t ours = rs_guard_stack_of(log);
		if (ours.ss_size && n + 2 < SKIPS)
			skip[2 * n] = (uintptr_t)ours.ss_sp, skip[2 * n++ + 1] = (uintptr_t)ours.ss_sp + ours.ss_size;
		if (log->alt_size && log->sp - log->alt_lo > log->alt_size && n + 2 < SKIPS)
			skip[2 * n] = log->alt_lo, skip[2 * n++ + 1] = log->alt_lo + log->alt_size;
		struct rs_guard_within w;
		for (uint32_t k = 0; n + 3 < SKIPS && rs_guard_stack_within(log, &k, &w);) {
			skip[2 * n] = w.gregs, skip[2 * n++ + 1] = w.gregs + (REG_EFL + 1) * 8;
			skip[2 * n] = w.xmm, skip[2 * n++ + 1] = w.xmm + 16 * 16;
			skip[2 * n] = w.lo, skip[2 * n++ + 1] = w.hi;
		}
	}
	return n;
}

static void whose_stack(uint64_t at)
{
	struct rs_guard_world *w = rs_guard_world();
	for (uint32_t i = 0; i < w->logs; i++) {
		const struct rs_guard_log *t = rs_guard_log(i);
		if (t->tid && t->sp && at - t->sp < t->stack_hi - t->sp)
			w->stack.tid = t->tid, w->stack.above = at - t->sp, w->stack.before = t->pending_end;
	}
}

static long compare(void)
{
	struct rs_guard_world *w = rs_guard_world();
	uint64_t *skip = w->skip;
	const uint64_t *left;
	unsigned n = 0, lefts = rs_checkpoint_left(&left);
	uintptr_t lo, hi;
	for (uint32_t i = 0; i < w->logs; i++)
		if (rs_guard_log(i)->tid)
			rs_guard_call_unpoll(&rs_guard_log(i)->polled);
	rs_guard_log_own(&lo, &hi);
	skip[2 * n] = lo, skip[2 * n++ + 1] = hi;
	skip[2 * n] = w->loader[0], skip[2 * n++ + 1] = w->loader[1];
	/* What we know of the program is not the program's memory: what was told in the recording is not told again. */
	skip[2 * n] = w->agent[0], skip[2 * n++ + 1] = w->agent[1];
	for (uint32_t i = 0; i < w->logs && n < SKIPS; i++) {
		const struct rs_guard_log *t = rs_guard_log(i);
		if (t->tid && rs_world_lives(t->tid))
			skip[2 * n] = t->tp + w->tls[0], skip[2 * n++ + 1] = t->tp + w->tls[1];
	}
	for (uint32_t i = 0; w->session && i < rs_os_range_count() && n < SKIPS; i++, n++)
		skip[2 * n] = rs_os_ranges[i].lo, skip[2 * n + 1] = rs_os_ranges[i].hi;
	for (unsigned i = 0; i < lefts && n < SKIPS; i++, n++)
		skip[2 * n] = left[2 * i], skip[2 * n + 1] = left[2 * i] + left[2 * i + 1];
	uint32_t tid;
	uint64_t rseq;
	for (uint32_t i = 0; n < SKIPS && rs_guard_threads_birth(i, &tid, &rseq); i++)
		if (rseq)
			skip[2 * n] = rseq, skip[2 * n++ + 1] = rseq + rs_rseq_area();
	unsigned stacks = n;
	uint64_t at, was, is;
	n = skip_stacks(skip, n, w->session);
	long r = rs_checkpoint_end_same(skip, n, &at, &was, &is);
	if (r > 0) {
		w->at = at;
		rs_guard_diverged(NULL, r == 1 ? RS_GUARD_MEMORY : RS_GUARD_MAP, was, is);
	}
	if (r != 0 || !w->session)
		return r < 0 ? r : 0;
	/* Now with the stacks from each thread's stack pointer on. */
	n = skip_stacks(skip, stacks, false);
	if ((r = rs_checkpoint_end_same(skip, n, &at, &was, &is)) > 0) {
		w->at = at;
		rs_guard_diverged(NULL, RS_GUARD_STACK, was, is);
		whose_stack(at);
	}
	return r < 0 ? r : 0;
}

void rs_guard_let_go(void)
{
	struct rs_guard_world *w = rs_guard_world();
	__atomic_store_n(&w->ending, 0, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&w->verdicts, 1, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&w->gate, 1, __ATOMIC_SEQ_CST);
	RS_SYS3(SYS_futex, &w->gate, FUTEX_WAKE_PRIVATE, INT32_MAX);
}

/* World stopped, all standing: where the recording ended. */
static long keep_end(void)
{
	struct rs_world_thread *t;
	for (uint32_t i = 0; (t = rs_world_thread(i)); i++) {
		struct rs_guard_log *log = t->tid ? log_of(t->tid) : NULL;
		const greg_t *g = log ? rs_guard_stopped_at(t) : NULL;
		if (log)
			log->polled.n = 0;
		if (g && state_of(log) == RS_GUARD_IN_CALL) {
			rs_guard_call_polls(g, &log->polled);
			rs_guard_call_unpoll(&log->polled);
		}
	}
	long r = rs_checkpoint_end_keep();
	for (uint32_t i = 0; r == 0 && (t = rs_world_thread(i)); i++)
		if (t->tid)
			r = rs_world_keep_end(t);
	rs_guard_log_keep_end();
	return r;
}

/* The world is stopped (0, or why it could not be), wherever it is in a re-execution: on from where the recording ended. There is no other way to go on. */
static void forward(long stopped)
{
	struct rs_world_thread *t;
	rs_guard_faults_back();
	if (stopped == 0)
		rs_guard_threads_forward();
	long r = stopped == 0 ? rs_checkpoint_end_forward() : stopped;
	if (r < 0) {
		rs_guard_say(rs_os_pid(), "cannot go on behind a re-execution; it ends here", r);
		RS_SYS2(SYS_kill, rs_os_pid(), SIGKILL);
	}
	for (uint32_t i = 0; (t = rs_world_thread(i)); i++)
		if (t->tid)
			rs_world_forward(t);
	rs_guard_debug_again();
	rs_guard_kept_back();
	rs_guard_log_forward();
	rs_guard_threads_restore();
}

/* Before anything is written: a rollback that fails half-way leaves memory of two moments. */
static long may_go_back(void)
{
	static const uint32_t lost[] = {[RS_CHECKPOINT_SHARED] = RS_GUARD_LOST_SHARED, [RS_CHECKPOINT_NO_FILE] = RS_GUARD_LOST_FILE};
	enum rs_checkpoint_way way = rs_guard_world()->session ? rs_checkpoint_ways() : RS_CHECKPOINT_BOTH_WAYS;
	if (way == RS_CHECKPOINT_BOTH_WAYS)
		return 0;
	rs_guard_lost(lost[way]);
	return -ENOTSUP;
}

/* At the end of a re-execution. */
static long stop_all(void)
{
	long stopped = gather();
	for (int tries = 0; stopped < 0 && tries < 3; tries++) {
		/* Somebody comes to no event: then wherever it is. */
		rs_guard_diverged(NULL, RS_GUARD_STALLED, 0, 0);
		stopped = rs_world_stop(STOP_MS);
	}
	return stopped;
}

/* World stopped, after the last re-execution that the excursion is for: once more, with the program's accesses judged. Whatever comes of it is no verdict of the epoch's. */
static long judged(void)
{
	struct rs_guard_world *w = rs_guard_world(), was = *w;
	long stopped = 0;
	rs_guard_race_ahead();
	rs_guard_log_back();
	if (rs_guard_do_rollback() == 0) {
		rs_guard_try_back();
		if (rs_guard_race_on()) {
			w->slower = RS_GUARD_RACE_SLOWER;
			rs_world_go();
			stopped = stop_all();
			w->slower = 0;
			if (stopped == 0)
				rs_guard_race_over();
		}
		long r = stopped == 0 ? rs_guard_race_back() : stopped;
		stopped = r;
	}
	w->why = was.why, w->tid = was.tid, w->event = was.event, w->found = was.found, w->was = was.was, w->is = was.is, w->at = was.at;
	return stopped;
}

/* World stopped, all standing, the epoch recorded; so it is afterwards. */
static long again(void)
{
	struct rs_guard_world *w = rs_guard_world();
	if (!w->fault.asks)
		rs_guard_fault_drop(); /* who asks is another thread */
	long r = w->lost ? -ENOTSUP : keep_end();
	if (r < 0 || (r = may_go_back()) < 0)
		return r;
	if (w->swap && !rs_guard_log_swap())
		return -ENODATA;
	/* Several times: further watches, or a try after one that diverged. */
	long stopped = 0;
	bool first = true;
	rs_guard_try_excursion();
	do {
		rs_guard_log_back();
		if ((r = rs_guard_do_rollback()) < 0) {
			if (!first)
				break;
			rs_guard_log_forward();
			w->mode = RS_GUARD_RECORD;
			if (r != -ESRCH || !w->to_fault)
				return r;
			rs_guard_lost(RS_GUARD_LOST_THREAD);
			return -ENOTSUP;
		}
		first = false;
		w->tries++;
		rs_guard_faults_take();
		rs_guard_watch_arm();
		rs_guard_try_back();
		rs_world_go();
		stopped = stop_all();
		rs_guard_watch_disarm(stopped == 0);
		if (stopped == 0 && w->why == RS_GUARD_IDENTICAL && !w->to_fault)
			r = compare();
	} while (stopped == 0 && r == 0 && (rs_guard_try_more(w->why, w->tries) || (!rs_guard_try_gave_up() && rs_guard_watch_more(rs_guard_try_came(w->why)))));
	/* Of re-executions that looked into one that came out, some may not have. */
	if (rs_guard_came()->tries)
		w->why = rs_guard_came()->why;
	if (stopped == 0 && r == 0 && rs_guard_race_wanted())
		stopped = judged();
	forward(stopped);
	return r;
}

/* Not all have come to an event. If the one that asks has crashed, what the others compute is nobody's: the world is stopped wherever they are. */
static long gather_crash(void)
{
	enum { TIMES = 20 };
	for (int i = 0; i < TIMES; i++) {
		long r = rs_world_stop(STOP_MS);
		if (r < 0)
			return r;
		if (rs_guard_between() && rs_guard_fault_only())
			return 0;
		rs_world_go();
		rs_guard_wait_between();
	}
	return -EBUSY;
}

long rs_guard_reexecute(void)
{
	struct rs_guard_world *w = rs_guard_world();
	__atomic_store_n(&w->ending, 1, __ATOMIC_SEQ_CST);
	rs_guard_no_quick();
	long r = gather();
	if (r == -EBUSY && w->fault.dies)
		r = gather_crash();
	bool stopped = r == 0;
	uint32_t events = 0, lost = w->lost;
	if (r == -EAGAIN) {
		rs_guard_let_go();
		return r;
	}
	w->tries = 0;
	for (uint32_t i = 0; i < w->logs; i++)
		events += rs_guard_log(i)->at;
	if (stopped)
		r = again();
	if (r == -ENOTSUP)
		lost = w->lost;
	/* Not before: what the program was told of the last one it is told again. */
	rs_guard_watch_over();
	w->last.at = w->at, w->last.events = events, w->last.lost = lost, w->last.threads = w->logs;
	w->last.why = w->why, w->last.tid = w->tid, w->last.event = w->event, w->last.was = w->was, w->last.is = w->is;
	w->result = r < 0 ? (int32_t)r : (int32_t)w->why;
	if (w->session)
		rs_guard_told(w->result == RS_GUARD_IDENTICAL && w->to_fault ? RS_GUARD_VERDICT_CRASH : w->result);
	if (stopped)
		rs_guard_do_checkpoint();
	__atomic_fetch_add(&w->answers, 1, __ATOMIC_SEQ_CST);
	rs_guard_let_go();
	if (stopped)
		rs_world_go();
	return w->result;
}
