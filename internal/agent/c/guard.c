/* guard.c: the coordinator, and how it is asked. See guard.h. */
#include "alloc.h"
#include "checkpoint.h"
#include "guardepoch.h"
#include "guardrace.h"
#include "guardfault.h"
#include "guardkept.h"
#include "guardlog.h"
#include "guardrseq.h"
#include "guardsignal.h"
#include "guardstack.h"
#include "guardsync.h"
#include "guardsys.h"
#include "guardthread.h"
#include "guardtry.h"
#include "guardwant.h"
#include "guardwatch.h"
#include "heap.h"
#include "patch.h"
#include "thread.h"
#include "world.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <stdlib.h>

enum { NOTHING = RS_GUARD_ASK_NOTHING, CHECKPOINT = RS_GUARD_ASK_CHECKPOINT, ROLLBACK = RS_GUARD_ASK_ROLLBACK, STOP = RS_GUARD_ASK_STOP, AGAIN = RS_GUARD_ASK_AGAIN, END = RS_GUARD_ASK_END, SOON = RS_GUARD_ASK_SOON };
/* In a session a stop is given up soon, as the others stand meanwhile. Ends by time are given a hundredth of it (page faults behind a checkpoint cost about as much again), those of epochs that are lost a twentieth: until then nothing
 * could be executed again. */
enum { STACK = 256 << 10, STOP_MS = 2000, SESSION_STOP_MS = 100, ALONE_MS = 500, FAULTED_NS = 100000000, SESSION_END_NS = 300000000, TIMES = 20, CREDIT_NS = 5000000, TIMES_BY_TIME = 100, MOST_IN_VAIN = 3, MOST_IDLE = 8 };

/* What a test sees while the world is stopped, in memory that it shares with the process. The coordinator raises `said` and goes on when `go` is the same. */
struct rs_guard_test {
	uint32_t said, go, what;
	int32_t result;
	uint64_t stop_ns, memory_ns, pages, copied, dropped, remapped, tracking;
	uint32_t pieces, threads;
	struct { uint64_t tid, context; } thread[64]; /* and the address of the ucontext from which it will return */
	uint64_t piece[2 * 1024];  /* address, bytes: no rollback touches them */
};

static struct guard {
	uint32_t request;          /* futex, without a session */
	uint32_t ready;            /* futex: 1, or the coordinator could not begin: a negative errno */
	uint32_t pid;
	uint32_t over;             /* the coordinator is to end */
	bool plain;
	char *stack;               /* the coordinator's */
	int task;                  /* the coordinator's /proc/self/task */
	long kept;                 /* of the last checkpoint: 0, or why there is none */
	long failed;               /* of the last rollback that could not be */
	uint64_t rollbacks;        /* to the last checkpoint */
	uint64_t stop_ns, stops;
	struct rs_guard_test *test;
	uint32_t epoch_ms;
	void *aside[RS_REGIONS_ASIDE];
	uint32_t in_vain;          /* epochs in a row that were lost */
	uint64_t due, soonest;     /* ns: when the epoch ends, and before when it does not */
	uint64_t used;             /* ns: of CREDIT */
	uint32_t idle;             /* so many epochs in a row were too short for anything */
	uint64_t lost_due;         /* ns: from when on it ends if it is lost, whoever has asked */
	struct rs_guard_outside *outside; /* NULL: no session */
	uint32_t answered;         /* its last question */
	uint32_t tid;              /* the coordinator's */
} *guard;
uint32_t *rs_guard_request;

/* --- the coordinator ------------------------------------------------------------------------------------------------------- */

static uintptr_t rseq_offset, rseq_size;

/* The kernel writes it whenever the thread has moved to another processor. */
static void leave_rseq(const struct rs_world_thread *t)
{
	if (rseq_size && t->fs && *(const uint64_t *)(t->fs + 16) == t->fs) /* glibc's descriptor, which has its own address there */
		rs_checkpoint_leave(t->fs + rseq_offset, rs_rseq_area());
}

static void say(uint32_t what, long result)
{
	struct rs_guard_test *s = guard->test;
	const struct rs_checkpoint_stats *c = rs_checkpoint_stats();
	if (!s)
		return;
	const uint64_t *left;
	unsigned n = rs_checkpoint_left(&left);
	s->piece[0] = rs_guard_lo();
	s->piece[1] = rs_guard_hi() - rs_guard_lo();
	for (unsigned i = 0; i < 2 * n && i < 2 * 1024 - 2; i++)
		s->piece[2 + i] = left[i];
	s->pieces = 1 + n;
	struct rs_world_thread *t;
	s->threads = 0;
	for (uint32_t i = 0; (t = rs_world_thread(i)); i++)
		if (t->tid && s->threads < 64) {
			s->thread[s->threads].tid = t->tid;
			s->thread[s->threads++].context = (uint64_t)(t->order == RS_WORLD_BACK ? &t->out->uc : t->uc);
		}
	s->what = what;
	s->result = (int32_t)result;
	s->stop_ns = rs_world_stop_ns();
	s->memory_ns = c->ns, s->pages = c->pages, s->copied = c->copied, s->dropped = c->dropped, s->remapped = c->remapped, s->tracking = c->tracking;
	uint32_t said = s->said + 1;
	__atomic_store_n(&s->said, said, __ATOMIC_RELEASE);
	while (__atomic_load_n(&s->go, __ATOMIC_ACQUIRE) != said) {
		struct timespec ts = {0, 100000};
		RS_SYS2(SYS_nanosleep, &ts, NULL);
	}
}

static uint32_t anyone(void)
{
	struct rs_world_thread *t;
	for (uint32_t i = 0; (t = rs_world_thread(i)); i++)
		if (t->tid)
			return t->tid;
	return 0;
}

long rs_guard_do_checkpoint(void)
{
	struct rs_world_thread *t;
	if (rs_guard_on)
		rs_guard_threads_end();
	/* An epoch that begins while the kernel has workers is lost: nobody goes back to its beginning, and what is written counts as written since the last one that was kept. */
	bool workers = rs_guard_on && guard->kept != -ENOENT /* the first */ && rs_world_workers();
	long r = workers ? -EBUSY : rs_checkpoint_keep();
	for (uint32_t i = 0; r == 0 && (t = rs_world_thread(i)); i++) {
		t->frame_bytes = 0;
		if (t->tid && (r = rs_world_keep(t)) == 0)
			leave_rseq(t);
	}
	if (r == 0)
		r = rs_guard_files_keep(guard->task, anyone());
	guard->rollbacks = 0;
	if (rs_guard_on)
		rs_guard_log_new();
	if (rs_guard_on && rs_world_workers())
		rs_guard_lost(RS_GUARD_LOST_CALL);
	if (rs_guard_on && r < 0)
		rs_guard_lost(RS_GUARD_LOST_MEMORY);
	return guard->kept = r;
}

/* Threads made in the epoch end before anything goes back; they write nothing to the program's memory on their way. */
long rs_guard_do_rollback(void)
{
	struct rs_world_thread *t;
	if (guard->kept < 0)
		return guard->kept;
	for (uint32_t i = 0; (t = rs_world_thread(i)); i++)
		if (t->frame_bytes && !t->tid)
			return -ESRCH; /* it has ended, and cannot be made again */
	for (uint32_t i = 0; (t = rs_world_thread(i)); i++)
		if (t->tid && !t->frame_bytes && rs_guard_world() && rs_guard_world()->to_fault && !rs_guard_threads_is_born(t->tid))
			return -ESRCH; /* made behind a fault, and natively it would go on */
	for (uint32_t i = 0; (t = rs_world_thread(i)); i++)
		if (t->tid && !t->frame_bytes && !rs_guard_threads_unborn(t->tid))
			t->order = RS_WORLD_EXIT;
	rs_world_end_ordered();
	rs_guard_kept_back();
	long r = rs_checkpoint_back();
	if (r == 0 && rs_guard_on && rs_guard_world()->session)
		r = rs_checkpoint_aside();
	if (r == 0)
		r = rs_guard_files_back(anyone());
	if (r < 0) {
		/* Some memory is of the checkpoint and some is not: nothing that the program did from here on would be what it does. */
		rs_guard_say(anyone(), "cannot go back to the checkpoint; it ends here", r);
		RS_SYS2(SYS_kill, rs_os_pid(), SIGKILL);
	}
	for (uint32_t i = 0; (t = rs_world_thread(i)); i++)
		if (t->tid && t->frame_bytes)
			rs_world_back(t);
	rs_guard_threads_restore();
	if (rs_guard_on && rs_guard_world()->session) {
		rs_region_aside(guard->aside);
		rs_guard_queues_tell(); /* what the checkpoint has of it is of the epoch before */
	}
	guard->rollbacks++;
	return 0;
}

/* --- epochs of a session ----------------------------------------------------------------------------------------------------- */

static void count(uint64_t *counter, uint64_t n) { __atomic_fetch_add(counter, n, __ATOMIC_RELAXED); }

static void count_lost(uint32_t why)
{
	if (why) {
		count(&rs_counters->guard_lost[why & 15], 1);
		__atomic_store_n(&rs_counters->guard[0].last_lost, why, __ATOMIC_RELAXED);
	}
}

/* Ends the epoch wherever its threads are, if they are between events. -EAGAIN: rs_guard_put_off. */
static long end_anywhere(void)
{
	struct rs_guard_world *w = rs_guard_world();
	uint32_t lost = w->lost;
	uint64_t begun = rs_os_now_ns();
	long r = rs_world_stop(SESSION_STOP_MS);
	while (r == 0 && !rs_guard_put_off(w) && !rs_guard_between()) {
		/* Who waits for a processor behind a call is in the middle of one, and of many threads some always do: whoever comes to another event stands there. */
		__atomic_store_n(&w->ending, 1, __ATOMIC_SEQ_CST);
		rs_guard_no_quick();
		rs_world_go();
		rs_guard_wait_between();
		r = rs_os_now_ns() - begun > SESSION_END_NS ? -EBUSY : rs_world_stop(SESSION_STOP_MS);
	}
	bool stopped = r == 0;
	if (stopped && rs_guard_put_off(w))
		r = -EAGAIN;
	if (r == 0) {
		count(&rs_counters->guard_epochs, 1);
		count_lost(lost);
		rs_guard_do_checkpoint();
	}
	rs_guard_let_go();
	if (stopped)
		rs_world_go();
	return r;
}

void rs_guard_told(long r)
{
	struct rs_guard_world *w = rs_guard_world();
	if (r == -EBUSY)
		return;
	count(&rs_counters->guard_epochs, 1);
	count(&rs_counters->guard_events, w->last.events);
	if (r == -ENOTSUP && w->last.lost)
		count_lost(w->last.lost);
	else {
		count(&rs_counters->guard_verdicts[r < 0 ? RS_GUARD_VERDICT_FAILED : r & 15], 1);
		count(&rs_counters->guard_same[r == RS_GUARD_IDENTICAL || r == RS_GUARD_STACK || r == RS_GUARD_VERDICT_CRASH ? w->tries & 15 : 0], 1);
	}
	uint64_t *d = rs_counters->guard_differs;
	/* Words of stacks do not take the place of what is worse. */
	if (r != 0 && r != RS_GUARD_VERDICT_CRASH && !w->last.lost && (r != RS_GUARD_STACK || d[0] == 0 || d[0] == RS_GUARD_STACK)) {
		d[0] = (uint64_t)r, d[1] = w->last.event, d[2] = w->last.at, d[3] = w->last.was, d[4] = w->last.is, d[5] = w->last.tid;
		d[6] = w->stack.tid, d[7] = w->stack.above, d[8] = w->stack.before;
	}
}

static void end_soon(void)
{
	uint64_t soon = rs_os_now_ns() + 1000000;
	soon = soon < guard->soonest ? guard->soonest : soon;
	guard->due = soon < guard->due ? soon : guard->due;
}

static bool may_stop(void)
{
	struct rs_guard_world *w = rs_guard_world();
	__atomic_store_n(&w->stopping, 1, __ATOMIC_SEQ_CST);
	return !__atomic_load_n(&w->holding, __ATOMIC_SEQ_CST);
}

static void stopped(void)
{
	struct rs_guard_world *w = rs_guard_world();
	__atomic_store_n(&w->stopping, 0, __ATOMIC_SEQ_CST);
	RS_SYS3(SYS_futex, &w->stopping, FUTEX_WAKE_PRIVATE, 1 << 30);
}

/* Who asked for a re-execution is told that there is none, before it is let go. */
static void answer_lost(void)
{
	struct rs_guard_world *w = rs_guard_world();
	w->result = -ENOTSUP;
	w->last.lost = w->lost ? w->lost : RS_GUARD_LOST_SIGNAL;
	__atomic_fetch_add(&w->answers, 1, __ATOMIC_SEQ_CST);
}

/* What came of it, as of rs_guard_reexecute; 0, too, where it was not executed again. asked: by a thread, for a re-execution. -EAGAIN: it cannot end now, and will soon. */
static long end(bool execute_again, bool asked)
{
	struct rs_guard_world *w = rs_guard_world();
	if (!rs_guard_mode()) {
		guard->due = 0;
		return -ENOSYS;
	}
	rs_guard_fault_look();
	w->answering = asked && (!rs_guard_is_faulted(w) || w->fault.asks);
	bool later = !may_stop() || rs_guard_put_off(w);
	if (asked && !w->answering)
		answer_lost();
	if (later) {
		stopped();
		rs_guard_let_go();
		guard->due = rs_os_now_ns() + (rs_guard_is_faulted(w) && !w->fault.over ? FAULTED_NS : 10000000);
		return -EAGAIN;
	}
	uint64_t begun = rs_os_now_ns(), events = 0;
	for (uint32_t i = 0; i < w->logs; i++)
		events += rs_guard_log(i)->at;
	bool again = execute_again && !w->lost;
	if (asked && !again)
		answer_lost();
	guard->in_vain = w->lost ? guard->in_vain + 1 : 0;
	long r = again ? rs_guard_reexecute() : end_anywhere();
	if (r == -EBUSY && execute_again && end_anywhere() == -EAGAIN) /* it is over all the same: its log may be full */
		r = -EAGAIN;
	stopped();
	if (r == -EAGAIN) {
		guard->due = rs_os_now_ns() + 10000000;
		return r;
	}
	uint64_t now = rs_os_now_ns(), cost = now - begun;
	if (r == -EBUSY)
		count(&rs_counters->guard_busy, 1);
	count(&rs_counters->guard_stop_ns, cost);
	w->begun_ms = now / 1000000;
	/* Where each epoch is lost soon after it has begun, another is worth little. */
	/* A program does most of what ends epochs when it begins: those are had at once. */
	uint64_t free = cost < CREDIT_NS - guard->used ? cost : CREDIT_NS - guard->used;
	guard->used += free;
	guard->soonest = now + (w->every && r != -EBUSY ? 0 : (cost - free) * (guard->in_vain > MOST_IN_VAIN ? TIMES_BY_TIME : TIMES));
	__atomic_store_n(&w->soonest_ns, guard->soonest, __ATOMIC_RELEASE);
	/* Nothing was done, and to end it took longer than it had: where each is executed again and the processors are busy, threads would come to nothing for good. */
	guard->idle = !w->every || events || cost < guard->epoch_ms * 1000000ull ? 0 : guard->idle < MOST_IDLE ? guard->idle + 1 : MOST_IDLE;
	guard->due = now + (guard->epoch_ms * 1000000ull << guard->idle);
	uint64_t least = w->every || r == -EBUSY ? guard->soonest : now + cost * TIMES_BY_TIME;
	if (guard->due < least)
		guard->due = least;
	guard->lost_due = least;
	__atomic_store_n(&rs_counters->guard[0].begun_ns, now, __ATOMIC_RELAXED);
	if (w->lost)
		end_soon();
	return r;
}

/* Go is to believe nothing of what threads do meanwhile: they may stand, or do something again. */
static void busy(void)
{
	if (guard->outside)
		__atomic_fetch_add(&guard->outside->busy, 1, __ATOMIC_SEQ_CST);
}

static bool asked_outside(void)
{
	uint32_t ask = guard->outside ? __atomic_load_n(&guard->outside->ask, __ATOMIC_ACQUIRE) : 0;
	return ask && ask != guard->answered;
}

/* Go's question, once. Answers are written before `answered`. */
static void serve_outside(void)
{
	struct rs_guard_outside *o = guard->outside;
	struct rs_guard_world *w = rs_guard_world();
	uint32_t ask = o ? __atomic_load_n(&o->ask, __ATOMIC_ACQUIRE) : 0, want = ask & 0xff;
	if (!ask || ask == guard->answered)
		return;
	uint64_t begun = rs_os_now_ns();
	uint32_t lost = w->lost, events = 0;
	uint64_t bytes = 0;
	for (uint32_t i = 0; i < w->logs; i++) {
		const struct rs_guard_log *t = rs_guard_log(i);
		events += t->at;
		bytes += (uint64_t)t->at * sizeof *t->event + t->bytes_at;
	}
	long r = want == RS_GUARD_WANT_STATUS ? (rs_guard_mode() ? 0 : -ENOSYS) : end(want == RS_GUARD_WANT_ROLLBACK, false);
	if (r == -EAGAIN)
		return;
	if (want == RS_GUARD_WANT_ROLLBACK && r == 0 && lost)
		r = -ENOTSUP;
	if (want == RS_GUARD_WANT_ROLLBACK && r != -EBUSY && !lost)
		lost = w->last.lost, events = w->last.events;
	o->result = (int32_t)r, o->lost = lost, o->tries = want == RS_GUARD_WANT_ROLLBACK && !lost ? w->tries : 0;
	o->took_ns = rs_os_now_ns() - begun, o->events = events, o->log_bytes = bytes;
	o->differs[0] = w->last.event, o->differs[1] = w->last.at, o->differs[2] = w->last.was, o->differs[3] = w->last.is, o->differs[4] = w->last.tid;
	guard->answered = ask;
	__atomic_store_n(&o->answered, ask, __ATOMIC_RELEASE);
	RS_SYS3(SYS_futex, &o->answered, FUTEX_WAKE, 1 << 30);
}

static void done(void)
{
	__atomic_store_n(rs_guard_request, NOTHING, __ATOMIC_RELEASE);
	RS_SYS3(SYS_futex, rs_guard_request, FUTEX_WAKE, 1 << 30);
}

static void serve_session(uint32_t request)
{
	/* Before: who waits to ask stands in the end that was asked for. */
	done();
	if (request == SOON)
		end_soon();
	else if (request != RS_GUARD_LOOK)
		end(request == AGAIN || rs_guard_world()->every, request == AGAIN);
}

static void serve(uint32_t request)
{
	if (rs_guard_on && rs_guard_world()->session && request >= AGAIN) {
		serve_session(request);
		return;
	}
	if (request == RS_GUARD_LOOK) {
		done();
		return;
	}
	if (request == AGAIN) {
		/* Before: who is let go with its verdict may ask at once again. */
		__atomic_store_n(rs_guard_request, NOTHING, __ATOMIC_RELEASE);
		rs_guard_reexecute();
		RS_SYS3(SYS_futex, rs_guard_request, FUTEX_WAKE, 1 << 30);
		return;
	}
	long r = rs_world_stop(STOP_MS);
	while (r == 0 && rs_guard_on && request == CHECKPOINT && !rs_guard_between()) {
		rs_world_go();
		rs_guard_wait_between();
		r = rs_world_stop(STOP_MS);
	}
	bool stopped = r == 0;
	guard->stop_ns = rs_world_stop_ns();
	guard->stops++;
	if (r == 0 && request == CHECKPOINT) {
		r = rs_guard_do_checkpoint();
		/* Here, before it sleeps: what another thread sets then it sees when it wakes, half a second later. */
		guard->due = guard->epoch_ms ? rs_os_now_ns() + guard->epoch_ms * 1000000ull : 0;
	} else if (request == CHECKPOINT)
		guard->kept = r;
	if (r == 0 && request == ROLLBACK)
		r = rs_guard_do_rollback();
	if (r == 0 && request == ROLLBACK && rs_guard_on)
		rs_guard_log_back();
	guard->failed = r;
	if (stopped)
		say(request, r);
	__atomic_store_n(rs_guard_request, NOTHING, __ATOMIC_RELEASE);
	if (stopped)
		rs_world_go();
	RS_SYS3(SYS_futex, rs_guard_request, FUTEX_WAKE, 1 << 30);
}

static long other(void *arg, uint32_t tid)
{
	(void)arg;
	return tid != rs_os_tid() && !rs_world_ended(tid);
}

/* A process ends with its last thread, and we are none of the program's. */
static bool alone(void)
{
	long dir = rs_guard_open(guard->task, ".", O_DIRECTORY), r = dir < 0 ? 1 : rs_guard_numbers((int)dir, other, NULL);
	if (dir >= 0)
		RS_SYS1(SYS_close, dir);
	return r == 0;
}

static void all_keys_open(void)
{
	uint32_t a = 7, b, c = 0, d;
	__asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
	if (c & 1 << 4) /* OSPKE */
		__asm__ volatile(".byte 0x0f, 0x01, 0xef" : : "a"(0), "c"(0), "d"(0)); /* wrpkru */
}

static long begin(void)
{
	/* Our own table of descriptors, empty: a pipe that the program closes must be closed. */
	long r = RS_SYS3(436 /* close_range */, 0, ~0u, 2 /* CLOSE_RANGE_UNSHARE */);
	if (r < 0)
		return r;
	all_keys_open();
	/* None of our own files in /proc before they are needed. When a thread ends the kernel first tells the parent, if it is the process's last one, and then forgets what it knows of such files; whoever waits for the process
	 * meanwhile waits for that by a busy loop (proc_invalidate_siblings_dcache, 6.18): milliseconds, where others have the processors. */
	r = rs_guard_open(AT_FDCWD, "/proc/self/task", O_DIRECTORY);
	if (r < 0)
		return r;
	guard->task = (int)r;
	r = rs_checkpoint_begin(guard->task, guard->plain);
	if (r == 0 && rs_guard_on)
		r = rs_checkpoint_end_begin();
	if (r == 0)
		r = rs_guard_files_begin();
	if (r == 0)
		r = rs_world_begin(guard->task);
	if (r == 0)
		rs_guard_kept_open(guard->task);
	return r;
}

static void coordinate(void *arg) __attribute__((noreturn));
static void coordinate(void *arg)
{
	(void)arg;
	long r = begin();
	__atomic_store_n(&guard->ready, r < 0 ? (uint32_t)r : 1, __ATOMIC_RELEASE);
	RS_SYS3(SYS_futex, &guard->ready, FUTEX_WAKE_PRIVATE, 1 << 30);
	uint64_t looked = rs_os_now_ns();
	while (r == 0 && !__atomic_load_n(&guard->over, __ATOMIC_SEQ_CST)) {
		uint64_t now = rs_os_now_ns(), until = looked + ALONE_MS * 1000000ull;
		until = guard->due && guard->due < until ? guard->due : until;
		/* A handler may do with memory what it likes, ours included, while nobody else writes there: so redis tests it. */
		uint64_t quiet = rs_guard_on ? rs_guard_fault_lasts() : 0;
		until = quiet ? now + quiet : until;
		uint64_t late = rs_guard_signals_late(now);
		until = late && late < until ? late : until;
		until = until > now ? until - now : 0;
		struct timespec ts = {(time_t)(until / 1000000000u), (long)(until % 1000000000u)};
		rs_guard_kept_answer();
		uint32_t request = __atomic_load_n(rs_guard_request, __ATOMIC_SEQ_CST);
		if (request != NOTHING) {
			busy();
			serve(request);
			busy();
		}
		else if (until > 0 && RS_SYS4(SYS_futex, rs_guard_request, FUTEX_WAIT, NOTHING, &ts) != -ETIMEDOUT)
			continue;
		now = rs_os_now_ns();
		if (now - looked > ALONE_MS * 1000000ull && !quiet) {
			if (alone())
				break;
			looked = now;
			if (rs_guard_on)
				rs_guard_want_look();
			if (rs_guard_on && rs_ctl && __atomic_load_n(&rs_ctl->closing, __ATOMIC_RELAXED))
				rs_guard_close();
			/* What lost it may be long over, and with epochs of an hour nothing would be recorded until then. */
			if (guard->due && rs_guard_on && (rs_guard_world()->lost || rs_guard_is_faulted(rs_guard_world())) && guard->due > guard->lost_due)
				guard->due = guard->lost_due > now ? guard->lost_due : now;
		}
		bool due = guard->due && now >= guard->due;
		if (due || asked_outside()) {
			busy();
			if (due)
				end(rs_guard_world()->every, false);
			serve_outside();
			busy();
		}
	}
	RS_SYS1(SYS_exit, 0);
	__builtin_unreachable();
}

/* A task that shares all with us but the stack. Its first steps cannot be C: what it would return to is its parent's. */
static long spawn(char *stack_top)
{
	long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_UNTRACED, r;
	register void (*callee)(void *) __asm__("r12") = coordinate;
	__asm__ volatile("xor %%edx, %%edx\n\t"
			 "xor %%r10d, %%r10d\n\t"
			 "xor %%r8d, %%r8d\n\t"
			 "syscall\n\t"
			 "test %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xor %%ebp, %%ebp\n\t"
			 "xor %%edi, %%edi\n\t"
			 "call *%[callee]\n\t"
			 "ud2\n"
			 "1:"
			 : "=a"(r)
			 : "a"(SYS_clone), "D"(flags), "S"(stack_top), [callee] "r"(callee)
			 : "rcx", "rdx", "r8", "r10", "r11", "memory", "cc");
	return r;
}

/* --- asked by threads of the program ------------------------------------------------------------------------------------------ */

/* What the coordinator does for this thread is over when it goes on: back from its stop, or, after a rollback, back at the checkpoint, where it waited for that. The words it looks at survive. */
static long ask(uint32_t what)
{
	uint32_t free = NOTHING;
	if (!guard || guard->pid != rs_os_pid())
		return -ESRCH;
	while (!__atomic_compare_exchange_n(rs_guard_request, &free, what, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		RS_SYS4(SYS_futex, rs_guard_request, FUTEX_WAIT, free, NULL);
		free = NOTHING;
	}
	RS_SYS3(SYS_futex, rs_guard_request, FUTEX_WAKE, 1 << 30);
	while (__atomic_load_n(rs_guard_request, __ATOMIC_ACQUIRE) == what)
		RS_SYS4(SYS_futex, rs_guard_request, FUTEX_WAIT, what, NULL);
	/* What a re-execution is to return is what the recording did. */
	return what == CHECKPOINT ? guard->kept < 0 ? guard->kept : rs_guard_on ? 0 : (long)guard->rollbacks : guard->failed;
}

static long another(void *own, uint32_t tid) { return tid != *(const uint32_t *)own; }

/* Is this the only task of the process? */
static bool is_only(uint32_t own)
{
	long dir = rs_guard_open(AT_FDCWD, "/proc/self/task", O_DIRECTORY);
	if (dir < 0)
		return true;
	bool only = rs_guard_numbers((int)dir, another, &own) == 0;
	RS_SYS1(SYS_close, dir);
	return only;
}

bool rs_guard_alone(void) { return is_only(rs_os_tid()); }

bool rs_guard_coordinator_lives(void) { return !guard->tid || RS_SYS3(SYS_tgkill, rs_os_pid(), guard->tid, 0) != -ESRCH; }

bool rs_guard_is_coordinator(uintptr_t sp) { return guard && sp - (uintptr_t)guard->stack < STACK; }

uint32_t rs_guard_coordinator(void) { return guard && guard->pid == rs_os_pid() && !guard->over ? guard->tid : 0; }

/* The coordinator ends, and is gone. */
static void end_coordinator(void)
{
	const struct timespec moment = {0, 100000};
	const unsigned most = 10000;
	rs_guard_kept_shut();
	__atomic_store_n(&guard->over, 1, __ATOMIC_SEQ_CST);
	uint32_t nothing = NOTHING;
	__atomic_compare_exchange_n(rs_guard_request, &nothing, RS_GUARD_LOOK, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
	RS_SYS3(SYS_futex, rs_guard_request, FUTEX_WAKE, 1 << 30);
	/* The kernel says nowhere that it has forgotten a thread. */
	for (unsigned i = 0; i < most && !is_only(rs_os_tid()); i++)
		RS_SYS2(SYS_nanosleep, &moment, NULL);
}

void rs_guard_leave(void)
{
	if (!guard || guard->pid != rs_os_pid() || !rs_guard_world()->session)
		return;
	rs_guard_off();
	/* With others there the kernel refuses as natively. */
	if (__atomic_load_n(&rs_live_threads, __ATOMIC_SEQ_CST) <= 1 && !guard->over)
		end_coordinator();
}

void rs_guard_undo(void)
{
	if (guard && guard->pid == rs_os_pid()) {
		rs_guard_off();
		if (guard->tid)
			end_coordinator();
	}
	rs_guard_forget();
}

/* A forked child has glibc's where its parent had it, and asks no loader. */
static void find_rseq(void)
{
	static bool looked;
	if (looked)
		return;
	looked = true;
	const ptrdiff_t *offset = rs_real_find("__rseq_offset", "");
	const unsigned *size = rs_real_find("__rseq_size", "");
	rseq_offset = offset ? (uintptr_t)*offset : 0;
	rseq_size = offset && size ? *size : 0;
	if (rseq_size)
		rs_rseq_find((uintptr_t)__builtin_thread_pointer() + rseq_offset);
}

static long spawn_coordinator(char *stack_top)
{
	uint64_t mask = rs_os_no_signals();
	long r = spawn(stack_top);
	rs_os_signals(mask);
	if (r < 0)
		return r;
	guard->tid = (uint32_t)r;
	while (__atomic_load_n(&guard->ready, __ATOMIC_ACQUIRE) == 0)
		RS_SYS4(SYS_futex, &guard->ready, FUTEX_WAIT_PRIVATE, 0, NULL);
	return guard->ready == 1 ? 0 : (int32_t)guard->ready;
}

enum { PLAIN = 1, LOG = 2, UNORDERED = 4, SWAP = 8, OWN_HEAP = 16, CALLS = 32 };

/* Entry points for tests. One thread asks at a time. They are hidden, as all names that no library has natively; tests compute where they are. */
long rs_guard_begin(unsigned flags);
long rs_guard_checkpoint(void);
long rs_guard_rollback(void);
long rs_guard_stop(void);
void rs_guard_test(void *page);

long rs_guard_begin(unsigned flags)
{
	long r = guard && guard->pid == rs_os_pid() ? -EALREADY : rs_guard_reserve();
	if (r < 0)
		return r;
	char *stack = rs_guard_map(RS_ARENA_OWN, STACK);
	guard = rs_guard_map(RS_ARENA_OWN, sizeof *guard);
	if (!stack || !guard)
		return -ENOMEM;
	guard->outside = rs_config.guard & 1 ? rs_counters->guard : NULL;
	rs_guard_request = guard->outside ? &guard->outside->request : &guard->request;
	guard->pid = rs_os_pid();
	guard->stack = stack;
	guard->plain = flags & PLAIN;
	guard->kept = -ENOENT;
	rs_guard_calls_begin();
	if (flags & CALLS && ((!rs_guard_on && (r = rs_guard_log_begin()) < 0) || (r = rs_guard_sys_begin()) < 0))
		return r;
	find_rseq();
	if (flags & LOG) {
		/* SIGTRAP before the first checkpoint: actions go back, and a thread that has it blocked would not be told of a watch. */
		if ((!rs_guard_on && (r = rs_guard_log_begin()) < 0) || (r = rs_guard_watch_begin()) < 0 || (r = rs_guard_faults_begin()) < 0 || (r = rs_trap_begin()) < 0)
			return r;
		rs_guard_world()->unordered = flags & UNORDERED;
		rs_guard_world()->swap = flags & SWAP;
		rs_guard_self();
		if (flags & OWN_HEAP && rs_alloc_begin(RS_ALLOCATOR_FREER))
			rs_guard_heap_begin();
	}
	return spawn_coordinator(stack + STACK);
}

/* In a pid namespace of its own, with the outer one's /proc (a sandbox's init before it mounts anything), threads have other numbers there. */
static bool is_in_proc(void)
{
	char name[24], digits[24];
	long n = RS_SYS4(SYS_readlinkat, AT_FDCWD, "/proc/self", name, sizeof name);
	long own = rs_guard_digits(digits, rs_os_pid()) - digits;
	return n < 0 || (n == own && rs_os_equal(name, digits, (size_t)own));
}

long rs_guard_begin_session(bool every, bool queues, uint32_t ms)
{
	if (!is_in_proc())
		return -EXDEV;
	/* A call that is not seen would be made again. libc's heap has locks of its own, whose order is not; another allocator's are the program's. */
	if (!(rs_alloc.on || rs_heap_foreign()) || !rs_calls_on || rs_patch_missing() != 0)
		return -ENOTSUP;
	long r = rs_guard_begin(CALLS);
	if (r < 0 || (r = rs_guard_watch_begin()) < 0 || (r = rs_trap_begin()) < 0)
		return r;
	rs_guard_sync_begun();
	if ((r = rs_guard_stack_begin()) < 0 || (r = rs_guard_threads_begin(rseq_offset, rseq_size)) < 0 || (r = rs_guard_signals_begin()) < 0)
		return r;
	if (!rs_guard_cause_begin() || rs_guard_faults_begin() < 0 || rs_guard_try_begin() < 0 || rs_guard_race_begin() < 0)
		return -ENOMEM;
	struct rs_guard_world *w = rs_guard_world();
	w->session = true;
	w->every = every;
	w->queues_always = queues;
	rs_guard_thread_begin(rs_thread_tls && rs_thread_tls->handle && rs_thread_tls->handle->own_stack);
	if (rs_alloc.on)
		rs_guard_heap_begin();
	guard->epoch_ms = ms;
	w->begun_ms = rs_os_now_ns() / 1000000;
	if ((r = ask(CHECKPOINT)) < 0) {
		rs_guard_off();
		return r;
	}
	guard->outside->begun_ns = rs_os_now_ns();
	guard->outside->coordinator = guard->tid;
	__atomic_store_n(&guard->outside->state, 1, __ATOMIC_RELEASE);
	return 0;
}
long rs_guard_checkpoint(void) { return ask(CHECKPOINT); }
long rs_guard_rollback(void) { return ask(ROLLBACK); }
long rs_guard_stop(void) { return ask(STOP); }
void rs_guard_test(void *page) { guard->test = page; }

long rs_guard_again(void);
void rs_guard_last(void *to);
void rs_guard_watches(void *to);

long rs_guard_again(void)
{
	struct rs_guard_log *t = rs_guard_self();
	struct rs_guard_world *w = rs_guard_world();
	if (!guard || !t)
		return -ESRCH;
	t->sp = (uintptr_t)__builtin_frame_address(0) + 16;
	uint32_t seen = w->verdicts, free = NOTHING;
	while (__atomic_load_n(&w->verdicts, __ATOMIC_ACQUIRE) == seen) {
		uint32_t gate = __atomic_load_n(&w->gate, __ATOMIC_ACQUIRE);
		if (rs_guard_mode() == RS_GUARD_REPLAY && rs_guard_next_at(t) < t->end)
			rs_guard_before(t, 0, RS_GUARD_ASK, NULL); /* another was recorded: there is none of this kind but at the beginning */
		else if (rs_guard_mode() == RS_GUARD_REPLAY)
			rs_guard_pause(t, 0, RS_GUARD_ASK);
		else if (__atomic_compare_exchange_n(rs_guard_request, &free, AGAIN, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) || free == AGAIN) {
			RS_SYS3(SYS_futex, rs_guard_request, FUTEX_WAKE, 1 << 30);
			rs_guard_stand(t, 0, RS_GUARD_ASK, gate);
		} else
			RS_SYS4(SYS_futex, rs_guard_request, FUTEX_WAIT, free, NULL);
		free = NOTHING;
	}
	rs_guard_before(t, 0, RS_GUARD_ASK, NULL);
	rs_guard_after(t, 0, RS_GUARD_ASK, 0, false);
	return w->result;
}

void rs_guard_last(void *to) { rs_os_copy(to, &rs_guard_world()->last, sizeof rs_guard_world()->last); }
void rs_guard_watches(void *to) { rs_os_copy(to, rs_guard_watched(), sizeof *rs_guard_watched()); }
