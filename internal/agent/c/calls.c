/* calls.c: counts of system calls, which the hook keeps. Each thread counts in its own block in its region, without locks; threads that have none count in
 * the process's, the last block of its first region; and where no region may be written (in a child between clone and our atfork handler: rs_active is wiped by
 * the fork) in private memory, which is added when there is one.
 *
 * Ground rules: what the hook calls is compiled for general registers only, and makes no system call through libc. */
#include "calls.h"
#include "core.h"
#include "dispatch.h"
#include "guardfork.h"
#include "guardsys.h"
#include "guardtask.h"
#include "patch.h"
#include "share.h"
#include "uring.h"
#include <gnu/libc-version.h>

#define PR_SET_SECCOMP 22
#define PR_SET_TSC 26
#define PR_TSC_SIGSEGV 2

__thread struct rs_calls *rs_calls_tls;
uint32_t rs_calls_on, rs_hook_on;
static bool counted; /* rs_calls_on, and not for guard alone, which asks for no counts */
struct rs_calls rs_calls_pending __attribute__((visibility("hidden")));
struct rs_calls *rs_calls_shared __attribute__((visibility("hidden"))) = &rs_calls_pending; /* the process's */

RS_GENERAL static inline void add(struct rs_call_count *row, uint64_t calls, uint64_t errors, uint64_t ticks)
{
	__atomic_fetch_add(&row->calls, calls, __ATOMIC_RELAXED);
	if (errors)
		__atomic_fetch_add(&row->errors, errors, __ATOMIC_RELAXED);
	__atomic_fetch_add(&row->ticks, ticks, __ATOMIC_RELAXED);
}

/* A handler may come at any instruction, and count in the same row. */
RS_GENERAL static void count(uint32_t row, uint64_t calls, uint64_t errors, uint64_t ticks)
{
	if (!counted)
		return;
	bool known = __atomic_load_n(&rs_active, __ATOMIC_RELAXED);
	struct rs_calls *own = known ? rs_calls_tls : NULL;
	add(&(own ? own : known ? rs_calls_shared : &rs_calls_pending)->row[row], calls, errors, ticks);
}

RS_GENERAL static uint64_t failed(int64_t result) { return (uint64_t)result > -4096ull; }

RS_GENERAL void rs_calls_add(struct rs_call *c) { count(c->row, 1, failed(c->result), c->ticks); }

/* --- calls that are looked at ---------------------------------------------------------------------------------------------------------------- */

RS_GENERAL static uint64_t now(void)
{
	uint32_t lo, hi;
	__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
	return (uint64_t)hi << 32 | lo;
}

/* --- glibc's handler for cancellation ------------------------------------------------------------------------------------------------------------
 *
 * It is installed past sigaction(), and unwinds from where it interrupted the thread (nptl/pthread_cancel.c): which must not be a trampoline, for which there is no
 * unwind information. */

#define SIGCANCEL 32
struct kernel_action { void (*handler)(int, siginfo_t *, void *); uint64_t flags, restorer, mask; };
static void (*real_cancel)(int, siginfo_t *, void *);

static void cancel(int sig, siginfo_t *info, void *context)
{
	struct rs_shown shown;
	rs_patch_show(context, info, &shown);
	real_cancel(sig, info, context);
	rs_patch_resume(context, &shown);
}

/* glibc 2.34 to 2.36 installs it when pthread_cancel is called for the first time, and sends the signal at once. So that it is there before, the function is called for a thread that is
 * cancelled already, for which it does nothing else: whatever it reads of this one has all bits set. Before 2.34 the handler is there from the start on. */
void rs_cancel_prepare(void)
{
	static struct rs_lock once;
	static bool done;
	static uint64_t cancelled[512];
	if (!rs_patching || rs_calls_on || rs_sandboxed || __atomic_load_n(&done, __ATOMIC_ACQUIRE) || rs_in_vfork())
		return;
	uint64_t mask = rs_os_no_signals();
	rs_lock(&once);
	struct kernel_action act = {0};
	const char *version = gnu_get_libc_version();
	bool known = version[0] == '2' && version[1] == '.' && version[2] == '3' && version[3] >= '4' && version[3] <= '6' && !version[4];
	if (!done && RS_SYS4(SYS_rt_sigaction, SIGCANCEL, NULL, &act, 8) == 0 && (uintptr_t)act.handler <= 1 && known) { /* posix_spawn leaves it ignored */
		for (unsigned i = 0; i < sizeof cancelled / sizeof *cancelled; i++)
			cancelled[i] = ~0ull;
		rs_real.pthread_cancel((pthread_t)cancelled);
		RS_SYS4(SYS_rt_sigaction, SIGCANCEL, NULL, &act, 8);
	}
	if (!done && (uintptr_t)act.handler > 1 && act.handler != cancel) {
		real_cancel = act.handler;
		act.handler = cancel;
		RS_SYS4(SYS_rt_sigaction, SIGCANCEL, &act, NULL, 8);
	}
	__atomic_store_n(&done, true, __ATOMIC_RELEASE);
	rs_unlock(&once);
	rs_os_signals(mask);
}

RS_GENERAL static void wrap_cancel(struct rs_call *c)
{
	static struct kernel_action ours;
	const struct kernel_action *act = (const struct kernel_action *)c->arg[1];
	/* What cannot be read is for the kernel to refuse; it reads a set before it refuses this `how`. */
	if (!act || RS_SYS4(SYS_rt_sigprocmask, -1, act, NULL, 8) != -22 || (uintptr_t)act->handler <= 1 || act->handler == cancel)
		return;
	real_cancel = act->handler; /* always the same */
	ours.flags = act->flags;
	ours.restorer = act->restorer;
	ours.mask = act->mask;
	ours.handler = cancel;
	c->arg[1] = (uintptr_t)&ours;
}

RS_GENERAL static bool becomes_another(const struct rs_call *c) { return c->number == SYS_execve || c->number == SYS_execveat; }

/* From now on the time stamp counter kills who reads it (strict seccomp: kernel/seccomp.c, disable_TSC): nothing is counted in this process any more. */
RS_GENERAL static bool forbids_clock(const struct rs_call *c)
{
	if (c->number == SYS_seccomp)
		return c->arg[0] == 0;
	return c->number == SYS_prctl && ((c->arg[0] == PR_SET_TSC && c->arg[1] == PR_TSC_SIGSEGV) || (c->arg[0] == PR_SET_SECCOMP && c->arg[1] == 1));
}

RS_GENERAL static void classify(bool on)
{
	static const struct { uint16_t number; uint8_t class; } others[] = {
		/* The child goes on with another stack, or on this one while the parent waits. */
		{SYS_clone, RS_CALL_COUNT_PASS}, {SYS_clone3, RS_CALL_COUNT_PASS}, {SYS_vfork, RS_CALL_COUNT_PASS}, {SYS_fork, RS_CALL_COUNT_PASS},
		/* fs may be another when it comes back. */
		{SYS_arch_prctl, RS_CALL_COUNT_PASS},
		/* They do not come back; strace -c does not count the first two either. The kernel looks for the frame at rsp. */
		{SYS_exit, RS_CALL_PASS}, {SYS_exit_group, RS_CALL_PASS}, {SYS_rt_sigreturn, RS_CALL_PASS},
		{SYS_execve, RS_CALL_SEE}, {SYS_execveat, RS_CALL_SEE}, {SYS_prctl, RS_CALL_SEE}, {SYS_seccomp, RS_CALL_SEE}, {SYS_rt_sigaction, RS_CALL_SEE},
	};
	for (unsigned i = 0; i < RS_CALL_ROWS; i++) {
		uint8_t class = on ? RS_CALL_COUNT : RS_CALL_PASS;
		for (unsigned j = 0; on && j < sizeof others / sizeof *others; j++)
			if (others[j].number == i)
				class = others[j].class;
		__atomic_store_n(&rs_call_class[i], class, __ATOMIC_RELAXED);
	}
	if (rs_dispatch_on)
		rs_dispatch_classes();
}

RS_GENERAL static long before(struct rs_call *c)
{
	long made;
	if (RS_UNLIKELY(rs_share.base) && rs_share_process(c, &made))
		return made;
	if (rs_share_on && rs_share_before(c, &made))
		return made;
	if (rs_share_left && (rs_share_memory(c, &made), !made))
		return 0;
	if (becomes_another(c))
		count(c->row, 1, 0, 0); /* it does not come back */
	c->start = 0;
	if (forbids_clock(c)) {
		classify(false);
		rs_guard_young = 0; /* which reads the clock */
		return 1;
	}
	/* Where calls are counted the sites are libc's, which is called by functions of ours that have seen to it. */
	if (!rs_calls_on && (c->number == SYS_rt_sigaction || c->number == SYS_rt_sigprocmask)) {
		if (c->number == SYS_rt_sigaction)
			c->result = rs_raw_action((int)c->arg[0], (const void *)c->arg[1], (void *)c->arg[2], (long)c->arg[3]);
		else
			c->result = rs_raw_mask((int)c->arg[0], (const void *)c->arg[1], (void *)c->arg[2], (long)c->arg[3]);
		return 0;
	}
	if (c->number == SYS_rt_sigaction && c->arg[0] == SIGCANCEL)
		wrap_cancel(c);
	c->start = counted ? now() : 1;
	return 1;
}

RS_GENERAL static void after(struct rs_call *c)
{
	if (rs_share_on && rs_share_after(c))
		return;
	if (!c->start && c->result < 0)
		classify(true); /* it was not forbidden after all */
	if (c->start && counted)
		count(c->row, !becomes_another(c), failed(c->result), now() - c->start);
}

static bool uring_on; /* all accesses are told */

/* Requests to the kernel of code that calls it by itself, and what they are mapped by. fp: of a function that rs_hook_c called. */
RS_GENERAL static void hands(const struct rs_call *c, const uintptr_t *fp, bool made)
{
	if (!uring_on)
		return;
	const struct rs_called by = {NULL, c->next, c->next, (uintptr_t)c + RS_CALL_FRAME, *(const uintptr_t *)fp[0]};
	if (!made)
		rs_uring_before(&by, (unsigned)c->number, (const long *)c->arg);
	else
		rs_uring_after(&by, (unsigned)c->number, (const long *)c->arg, c->result);
}

RS_GENERAL long rs_call_before(struct rs_call *c)
{
	c->moved = c->left = 0;
	long dispatched;
	if (RS_UNLIKELY(rs_dispatch_on) && rs_dispatch_before(c, &dispatched))
		return dispatched;
	hands(c, __builtin_frame_address(0), false);
	if (RS_LIKELY(!rs_guard_on))
		return before(c);
	if (RS_LIKELY(!rs_share_on) && rs_guard_sys_quick(c))
		return 1;
	long made = rs_guard_sys_before(c);
	if (made != 1)
		return made;
	made = before(c);
	if (!made)
		rs_guard_sys_after(c);
	return made;
}

RS_GENERAL long rs_call_after(struct rs_call *c)
{
	if (RS_UNLIKELY(c->moved)) {
		c->result = (c->result > 0 ? c->result : 0) + (int64_t)c->moved;
		c->moved = 0;
	}
	if (RS_UNLIKELY(rs_dispatch_on) && rs_dispatch_after(c))
		return 0;
	if (RS_UNLIKELY(rs_guard_on && !rs_share_on))
		rs_guard_tasks_hide(c);
	if (rs_guard_on && !rs_share_on && !uring_on && rs_guard_sys_quick_over(c))
		return 0;
	if (RS_UNLIKELY(rs_guard_on && rs_guard_sys_again(c)))
		return 1;
	if (RS_LIKELY(!rs_guard_on || c->guard_state != RS_GUARD_CALL_BIRTH))
		after(c);
	hands(c, __builtin_frame_address(0), true);
	if (RS_UNLIKELY(rs_guard_on))
		rs_guard_sys_after(c);
	else if (RS_UNLIKELY(rs_guard_young))
		rs_guard_fork_called(c);
	return 0;
}

/* --- where they are counted --------------------------------------------------------------------------------------------------------------------- */

void rs_calls_begin(void)
{
	rs_calls_on = rs_hook_on = rs_config.calls;
	counted = rs_calls_on && !rs_config.guard;
	if (rs_calls_on)
		classify(true);
}

void rs_calls_patching(void)
{
	if (rs_calls_on)
		return;
	rs_call_class[SYS_rt_sigaction] = rs_call_class[SYS_rt_sigprocmask] = RS_CALL_SEE;
	uring_on = rs_called_told();
	for (unsigned i = 0; uring_on && i < RS_CALL_ROWS - 8; i++)
		if (rs_uring_has(i))
			rs_call_class[i] = RS_CALL_SEE;
}

static struct rs_calls *block(struct rs_region *shm, uint32_t index)
{
	return shm->calls_offset ? (struct rs_calls *)((char *)shm + shm->calls_offset) + index : NULL;
}

static void move(struct rs_calls *from, struct rs_calls *to)
{
	for (unsigned i = 0; i < RS_CALL_ROWS; i++) {
		struct rs_call_count *f = &from->row[i];
		if (!(f->calls | f->errors | f->ticks))
			continue;
		uint64_t calls = __atomic_exchange_n(&f->calls, 0, __ATOMIC_RELAXED);
		uint64_t errors = __atomic_exchange_n(&f->errors, 0, __ATOMIC_RELAXED);
		add(&to->row[i], calls, errors, __atomic_exchange_n(&f->ticks, 0, __ATOMIC_RELAXED));
	}
}

void rs_calls_region(struct rs_region *shm)
{
	struct rs_calls *rest = block(shm, shm->slots);
	if (!rest || !rs_calls_on)
		return;
	__atomic_store_n(&rs_calls_shared, rest, __ATOMIC_RELEASE);
	move(&rs_calls_pending, rest);
}

void rs_calls_claim(struct rs_thread *t)
{
	struct rs_calls *own = block(t->home->shm, t->index);
	/* Where the memory cannot be had, the thread counts with the others. */
	if (own && rs_calls_on && rs_region_present(own, sizeof *own) == 0)
		move(own, rs_calls_shared);
}

void rs_calls_enter(struct rs_thread *t)
{
	if (rs_calls_on)
		rs_calls_tls = block(t->home->shm, t->index);
}

void rs_calls_leave(void) { rs_calls_tls = NULL; }

void rs_calls_after_fork_forget(void)
{
	rs_calls_tls = NULL;
	rs_calls_shared = &rs_calls_pending;
}

void rs_calls_after_fork_join(struct rs_thread *t)
{
	if (rs_calls_on && t && rs_region_attach(t))
		rs_calls_enter(t);
}
