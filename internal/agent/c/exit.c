/* exit.c: the end of a process, and what is registered to run then.
 *
 * `process-end` comes from a handler that our constructor registered before anybody else could: it runs last, also when main returns,
 * where nothing can be interposed. Only _exit and its kin, which run no handlers, are seen by interposing them. */
#include "called.h"
#include "core.h"
#include "crash.h"
#include "crashtext.h"
#include "evidence.h"
#include "loader.h"
#include "proc.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>

void rs_emit_end(struct rs_thread *t, unsigned end, int status)
{
	if (rs_silent(t))
		return;
	rs_count_locks();
	rs_access_end(t);
	rs_lines_process_end(t);
	RS_EMIT_URGENT(t, PROCESS_END, process_end, (uint8_t)end, (uint32_t)status);
}

static void last_handler(int status, void *arg)
{
	(void)arg;
	struct rs_thread *t = rs_self();
	if (t)
		rs_evidence_check(t, RS_NOTICED_EXIT);
	rs_guard_exit(); /* a re-execution that comes here ends here: what is found is an end before it, in both */
	if (!t)
		return;
	if (rs_config.all)
		rs_stream_writes(NULL); /* exit writes what lies in streams when the last handler has returned */
	rs_sync_thread_end(t);
	rs_emit_end(t, RS_END_EXIT, status & 0xff);
}

static int quick_status;

static void last_quick_handler(void *arg)
{
	(void)arg;
	struct rs_thread *t = rs_self();
	if (!t)
		return;
	rs_evidence_check(t, RS_NOTICED_EXIT);
	rs_sync_thread_end(t);
	rs_emit_end(t, RS_END_QUICK_EXIT, quick_status & 0xff);
}

void rs_exit_start(void)
{
	RS_REAL(on_exit)(last_handler, NULL);
	RS_REAL(__cxa_at_quick_exit)(last_quick_handler, NULL);
}

RS_EXPORT __attribute__((noreturn)) void _exit(int status)
{
	struct rs_thread *t = rs_self();
	if (t)
		rs_evidence_check(t, RS_NOTICED_EXIT);
	rs_guard_exit();
	if (t)
		rs_emit_end(t, RS_END_RAW_EXIT, status & 0xff);
	if (rs_real._exit)
		rs_real._exit(status);
	for (;;)
		RS_SYS1(SYS_exit_group, status);
}

RS_EXPORT __attribute__((noreturn)) void _Exit(int status) { _exit(status); }

RS_EXPORT __attribute__((noreturn)) void quick_exit(int status)
{
	if (rs_self())
		quick_status = status;
	RS_REAL(quick_exit)(status);
	__builtin_unreachable();
}

/* Before glibc 2.24: the destructors of this thread's thread_local objects run too. */
void rs_old_quick_exit(int status);
RS_EXPORT __attribute__((noreturn)) void rs_old_quick_exit(int status)
{
	if (rs_self())
		quick_status = status;
	RS_REAL(old_quick_exit)(status);
	__builtin_unreachable();
}
RS_OLD(rs_old_quick_exit, quick_exit, "GLIBC_2.10");

/* A handler of the program may leave abort by longjmp: then it was not the end. */
RS_EXPORT __attribute__((noreturn)) void abort(void)
{
	struct rs_thread *t = rs_self();
	if (t) {
		struct sigaction sa;
		if (rs_config.all)
			RS_EMIT(t, SIGNAL_SEND, signal_send, SIGABRT, t->number, rs_own_pid);
		bool known = rs_real.sigaction && rs_real.sigaction(SIGABRT, NULL, &sa) == 0;
		if (known && !rs_crash_handles((const void *)sa.sa_handler) && (sa.sa_handler == SIG_DFL || sa.sa_handler == SIG_IGN)) {
			rs_evidence_check(t, RS_NOTICED_SIGNAL);
			rs_emit_end(t, RS_END_ABORT, 0);
		}
	}
	rs_crashtext_abort();
	RS_REAL(abort)();
	__builtin_unreachable();
}

/* --- registration: [all] only -------------------------------------------------------------------------------------------------- */

/* What the program registered. glibc gets `run` with the node for its argument, and the same dso, so that dlclose runs the same handlers as
 * without us. */
struct node {
	struct node *next;
	void (*fn)(void);
	void *arg;
};

static struct node *spare;
static struct rs_latch spare_lock;

void rs_atexit_after_fork(void) { spare_lock.word = 0; }

static struct node *take(void (*fn)(void), void *arg)
{
	rs_latch_take(&spare_lock);
	if (!spare) {
		enum { N = 4096 / sizeof(struct node) };
		struct node *n = rs_os_map(4096);
		for (int i = 0; n && i < N; i++)
			n[i].next = i + 1 < N ? &n[i + 1] : NULL;
		spare = n;
	}
	struct node *n = spare;
	if (n)
		spare = n->next;
	rs_latch_give(&spare_lock);
	if (n) {
		n->fn = fn;
		n->arg = arg;
	}
	return n;
}

static void give(struct node *n)
{
	rs_latch_take(&spare_lock);
	n->next = spare;
	spare = n;
	rs_latch_give(&spare_lock);
}

static struct node begin(void *p)
{
	struct node n = *(struct node *)p;
	give(p);
	struct rs_thread *t = rs_self();
	if (t)
		RS_EMIT(t, ATEXIT_RUN, atexit_run, (uintptr_t)n.fn);
	rs_loader_behind();
	return n;
}

/* glibc passes the exit status to what __cxa_atexit registered, too. */
static void run(void *p, int status)
{
	struct node n = begin(p);
	((void (*)(void *, int))(void (*)(void))n.fn)(n.arg, status);
}

static void run_on_exit(int status, void *p)
{
	struct node n = begin(p);
	((void (*)(int, void *))(void (*)(void))n.fn)(status, n.arg);
}

int __cxa_atexit(void (*fn)(void *), void *arg, void *dso);
int __cxa_at_quick_exit(void (*fn)(void *), void *dso);

/* Also atexit, which is a part of every program and calls this. */
RS_EXPORT int __cxa_atexit(void (*fn)(void *), void *arg, void *dso)
{
	struct rs_thread *t = rs_self();
	struct node *n;
	if (!t || !rs_config.all || !(n = take((void (*)(void))fn, arg)))
		return RS_REAL(__cxa_atexit)(fn, arg, dso);
	RS_EMIT(t, ATEXIT_ADD, atexit_add, (uintptr_t)fn);
	int r = rs_real.__cxa_atexit((void (*)(void *))(void (*)(void))run, n, dso);
	if (r != 0)
		give(n);
	return r;
}

RS_EXPORT int on_exit(void (*fn)(int, void *), void *arg)
{
	struct rs_thread *t = rs_self();
	struct node *n;
	if (!t || !rs_config.all || !(n = take((void (*)(void))fn, arg)))
		return RS_REAL(on_exit)(fn, arg);
	RS_EMIT(t, ATEXIT_ADD, atexit_add, (uintptr_t)fn);
	int r = rs_real.on_exit(run_on_exit, n);
	if (r != 0)
		give(n);
	return r;
}

/* No argument through which a handler could be wrapped: only its registration is seen. */
RS_EXPORT int __cxa_at_quick_exit(void (*fn)(void *), void *dso)
{
	struct rs_thread *t = rs_self();
	if (t && rs_config.all)
		RS_EMIT(t, ATEXIT_ADD, atexit_add, (uintptr_t)fn);
	return RS_REAL(__cxa_at_quick_exit)(fn, dso);
}
