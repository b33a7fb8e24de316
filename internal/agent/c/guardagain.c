/* guardagain.c: an epoch's end, its re-execution, and the verdict. Coordinator only. See guardlog.h and guard.h.
 *
 * All threads stand before an event; what was written since the checkpoint is kept; rollback; the same threads go on in mode REPLAY until each has done what its log says and stands before the same event; then memory is compared. Several times if more bytes are to be watched than there are registers, or if it diverged. Not
 * compared: what lies below each thread's stack pointer at its event, its alternate stack if it is not on it (frames of our stops lie there), rseq's bytes, and guard's own slots. The run goes on from where the re-execution ended, in a new epoch. */
#include "checkpoint.h"
#include "guardlog.h"
#include "guardwatch.h"
#include "world.h"
#include <errno.h>
#include <linux/futex.h>

enum { END_MS = 10000, STOP_MS = 10000, WAITING_MS = 5000, STALLED_MS = 30000, SKIPS = RS_GUARD_SKIPS };

static uint64_t now_ms(void)
{
	struct timespec ts = {0};
	RS_SYS2(SYS_clock_gettime, CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000u + (uint64_t)ts.tv_nsec / 1000000u;
}

static uint32_t state_of(const struct rs_guard_log *t) { return __atomic_load_n(&t->state, __ATOMIC_ACQUIRE); }

bool rs_guard_between(void)
{
	for (uint32_t i = 0; i < rs_guard_world()->logs; i++)
		if (rs_guard_log(i)->inner && state_of(rs_guard_log(i)) == RS_GUARD_RUNS)
			return false;
	return true;
}

static struct rs_guard_log *log_of(uint32_t tid)
{
	for (uint32_t i = 0; i < rs_guard_world()->logs; i++)
		if (rs_guard_log(i)->tid == tid)
			return rs_guard_log(i);
	return NULL;
}

static bool lives(const struct rs_guard_log *t) { return RS_SYS3(SYS_tgkill, rs_os_pid(), t->tid, 0) == 0; }

static bool stands(const struct rs_guard_log *t)
{
	const struct rs_guard_world *w = rs_guard_world();
	uint32_t state = state_of(t);
	if (w->mode == RS_GUARD_REPLAY && w->why == RS_GUARD_IDENTICAL && t->at != t->end)
		return false;
	return state == RS_GUARD_ENDED || state == RS_GUARD_IN_CALL;
}

/* How far all are; *waiting: nobody runs. */
static uint64_t progress(bool *all, bool *waiting)
{
	uint64_t sum = 0;
	*all = *waiting = true;
	for (uint32_t i = 0; i < rs_guard_world()->logs; i++) {
		const struct rs_guard_log *t = rs_guard_log(i);
		sum += t->at;
		if (stands(t) || !lives(t))
			continue;
		*all = false;
		if (state_of(t) == RS_GUARD_RUNS)
			*waiting = false;
	}
	return sum;
}

/* World stopped. A call that was interrupted before it did anything will be made again. */
static bool all_stand(void)
{
	struct rs_world_thread *w;
	for (uint32_t i = 0; (w = rs_world_thread(i)); i++) {
		if (!w->tid)
			continue;
		const struct rs_guard_log *t = log_of(w->tid);
		if (!t || !stands(t))
			return false;
		const greg_t *g = w->uc->uc_mcontext.gregs;
		if (state_of(t) == RS_GUARD_IN_CALL && !(w->call.in && ((uint64_t)g[REG_RIP] == w->call.pc - 2 || ((uint64_t)g[REG_RIP] == w->call.pc && g[REG_RAX] == -EINTR))))
			return false;
	}
	return true;
}

/* Stops the world with everybody standing: 0. -EBUSY: not in time; a negative errno of the stop; then it runs. */
static long gather(void)
{
	struct rs_guard_world *w = rs_guard_world();
	uint64_t begun = now_ms(), moved = begun, sum = 0;
	for (;;) {
		bool all, waiting;
		uint32_t ended = __atomic_load_n(&w->ended, __ATOMIC_SEQ_CST);
		rs_guard_kick();
		uint64_t s = progress(&all, &waiting), now = now_ms();
		if (s != sum) {
			sum = s;
			moved = now;
		}
		if (all) {
			long r = rs_world_stop(STOP_MS);
			if (r < 0)
				return r;
			if (all_stand())
				return 0;
			rs_world_go();
		}
		if (w->mode == RS_GUARD_RECORD ? now - begun > END_MS : now - moved > (waiting ? WAITING_MS : STALLED_MS)) {
			if (w->mode == RS_GUARD_RECORD || __atomic_load_n(&w->ending, __ATOMIC_ACQUIRE))
				return -EBUSY;
			rs_guard_diverged(NULL, RS_GUARD_STALLED, 0, 0);
			moved = now;
		}
		struct timespec ts = {0, 1000000};
		RS_SYS4(SYS_futex, &w->ended, FUTEX_WAIT_PRIVATE, ended, &ts);
	}
}

static long compare(void)
{
	struct rs_guard_world *w = rs_guard_world();
	uint64_t *skip = w->skip;
	const uint64_t *left;
	unsigned n = 0, lefts = rs_checkpoint_left(&left);
	struct rs_world_thread *t;
	uintptr_t lo, hi;
	rs_guard_log_own(&lo, &hi);
	skip[2 * n] = lo, skip[2 * n++ + 1] = hi;
	skip[2 * n] = w->loader[0], skip[2 * n++ + 1] = w->loader[1];
	for (unsigned i = 0; i < lefts && n < SKIPS; i++, n++)
		skip[2 * n] = left[2 * i], skip[2 * n + 1] = left[2 * i] + left[2 * i + 1];
	for (uint32_t i = 0; (t = rs_world_thread(i)) && n < SKIPS; i++) {
		const struct rs_guard_log *log = t->tid ? log_of(t->tid) : NULL;
		if (!log || !log->sp)
			continue;
		skip[2 * n] = rs_checkpoint_mapping(log->sp), skip[2 * n++ + 1] = log->sp;
		const stack_t *own = &t->uc->uc_stack;
		if (n < SKIPS && own->ss_size && log->sp - (uintptr_t)own->ss_sp > own->ss_size)
			skip[2 * n] = (uintptr_t)own->ss_sp, skip[2 * n++ + 1] = (uintptr_t)own->ss_sp + own->ss_size;
	}
	uint64_t at, was, is;
	long r = rs_checkpoint_end_same(skip, n, &at, &was, &is);
	if (r > 0) {
		w->at = at;
		rs_guard_diverged(NULL, r == 1 ? RS_GUARD_MEMORY : RS_GUARD_MAP, was, is);
	}
	return r < 0 ? r : 0;
}

/* Those who stand may go on. */
static void let_go(void)
{
	struct rs_guard_world *w = rs_guard_world();
	__atomic_store_n(&w->ending, 0, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&w->verdicts, 1, __ATOMIC_SEQ_CST);
	__atomic_fetch_add(&w->gate, 1, __ATOMIC_SEQ_CST);
	RS_SYS3(SYS_futex, &w->gate, FUTEX_WAKE_PRIVATE, INT32_MAX);
}

/* World stopped, all standing, the epoch recorded. *stopped: it is again. */
static long again(bool *stopped)
{
	struct rs_guard_world *w = rs_guard_world();
	long r = w->lost ? -ENOTSUP : rs_checkpoint_end_keep();
	if (r < 0)
		return r;
	if (w->swap && !rs_guard_log_swap())
		return -ENODATA;
	/* Several times: further watches, or a try after one that diverged. */
	do {
		rs_guard_log_back();
		if ((r = rs_guard_do_rollback()) < 0) {
			w->mode = RS_GUARD_RECORD;
			return r;
		}
		rs_guard_watch_arm();
		rs_world_go();
		if ((r = gather()) < 0) {
			/* Somebody comes to no event: then wherever it is. */
			rs_guard_diverged(NULL, RS_GUARD_STALLED, 0, 0);
			while ((r = rs_world_stop(STOP_MS)) == 0 && !rs_guard_between())
				rs_world_go();
			*stopped = r == 0;
			rs_guard_watch_disarm(*stopped);
			return r;
		}
		rs_guard_watch_disarm(true);
		r = w->why == RS_GUARD_IDENTICAL ? compare() : 0;
	} while (r == 0 && rs_guard_watch_more(w->why == RS_GUARD_IDENTICAL));
	return r;
}

long rs_guard_reexecute(void)
{
	struct rs_guard_world *w = rs_guard_world();
	__atomic_store_n(&w->ending, 1, __ATOMIC_SEQ_CST);
	long r = gather();
	bool stopped = r == 0;
	uint32_t events = 0, lost = w->lost;
	for (uint32_t i = 0; i < w->logs; i++)
		events += rs_guard_log(i)->at;
	if (stopped)
		r = again(&stopped);
	/* Not before: what the program was told of the last one it is told again. */
	rs_guard_watch_over();
	w->last.at = w->at, w->last.events = events, w->last.lost = lost, w->last.threads = w->logs;
	w->last.why = w->why, w->last.tid = w->tid, w->last.event = w->event, w->last.was = w->was, w->last.is = w->is;
	w->result = r < 0 ? (int32_t)r : (int32_t)w->why;
	/* From a frame that lies on no alternate stack: the kernel does not change the one that it is returned from. */
	struct rs_world_thread *t;
	if (stopped && rs_guard_do_checkpoint() == 0)
		for (uint32_t i = 0; (t = rs_world_thread(i)); i++)
			if (t->tid)
				rs_world_back(t);
	let_go();
	if (stopped)
		rs_world_go();
	return w->result;
}
