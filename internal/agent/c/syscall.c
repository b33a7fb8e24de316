/* syscall.c: the program's own system calls by syscall(), and prctl. Only those are looked at that order threads, make or end
 * processes, send signals or forbid us system calls; all others cost five instructions more than natively. syscall() is no cancellation
 * point. */
#include "cover.h"
#include "crash.h"
#include "dispatch.h"
#include "uring.h"
#include "proc.h"
#include "patch.h"
#include "share.h"
#include "sync.h"
#include <errno.h>
#include <linux/sched.h>

#define PR_SET_NAME 15
#define PR_SET_SECCOMP 22
#define PR_SET_TSC 26
#define PR_TSC_SIGSEGV 2

/* linux/futex.h defines names that the events have. */
enum {
	OP_MASK = 127, OP_WAIT = 0, OP_WAIT_BITSET = 9, OP_WAKE = 1, OP_REQUEUE = 3, OP_CMP_REQUEUE = 4, OP_WAKE_OP = 5, OP_UNLOCK_PI = 7, OP_WAKE_BITSET = 10, OP_CMP_REQUEUE_PI = 12,
};
struct futex_wait_on { uint64_t value, address; uint32_t flags, reserved; };

extern int *__errno_location(void) __attribute__((const));
long rs_syscall_seen(long n, long a, long b, long c, long d, long e, long f) __attribute__((visibility("hidden")));
long rs_syscall_clone(long n, unsigned long a, unsigned long b) __attribute__((visibility("hidden")));
long rs_syscall_error(long r) __attribute__((visibility("hidden")));

/* 0: pass, 1: rs_syscall_seen does it, 2: ask rs_syscall_clone, 3: rs_syscall_seen tells what it accesses, which is so only with called.c. */
__attribute__((visibility("hidden"), used)) uint8_t rs_syscall_class[512] = {
	[SYS_futex] = 1, [449 /* futex_waitv */] = 1, [454 /* futex_wake */] = 1, [455 /* futex_wait */] = 1, [456 /* futex_requeue */] = 1,
	[SYS_exit_group] = 1, [SYS_execve] = 1, [SYS_execveat] = 1, [SYS_prctl] = 1, [SYS_seccomp] = 1, [SYS_rt_sigprocmask] = 1, [SYS_rt_sigaction] = 1,
	[SYS_kill] = 1, [SYS_tkill] = 1, [SYS_tgkill] = 1, [SYS_rt_sigqueueinfo] = 1, [SYS_rt_tgsigqueueinfo] = 1,
	[SYS_fork] = 1, [SYS_clone] = 2, [SYS_clone3] = 2, [SYS_vfork] = 2,
};

__asm__(".text\n.p2align 4\n.globl syscall\n.type syscall, @function\nsyscall:\n"
	".cfi_startproc\n"
	"	cmpq $511, %rdi\n"
	"	ja 1f\n"
	"	leaq rs_syscall_class(%rip), %r11\n"
	"	cmpb $0, (%r11,%rdi)\n"
	"	jne 2f\n"
	"1:	cmpl $0, rs_dispatch_on(%rip)\n"
	"	jne 8f\n"
	"	movq %rdi, %rax\n"
	"	movq %rsi, %rdi\n"
	"	movq %rdx, %rsi\n"
	"	movq %rcx, %rdx\n"
	"	movq %r8, %r10\n"
	"	movq %r9, %r8\n"
	"	movq 8(%rsp), %r9\n"
	"	cmpl $0, rs_hook_on(%rip)\n"
	"	jne 5f\n"
	"	syscall\n"
	"6:	cmpq $-4095, %rax\n"
	"	jae 3f\n"
	"	ret\n"
	"2:	cmpb $2, (%r11,%rdi)\n"
	"	jne 4f\n"
	/* A child with our memory may return here on another stack: nothing may be left on this one. */
	"	pushq %rdi\n	pushq %rsi\n	pushq %rdx\n	pushq %rcx\n	pushq %r8\n	pushq %r9\n	subq $8, %rsp\n"
	".cfi_adjust_cfa_offset 56\n"
	"	call rs_syscall_clone\n"
	"	addq $8, %rsp\n	popq %r9\n	popq %r8\n	popq %rcx\n	popq %rdx\n	popq %rsi\n	popq %rdi\n"
	".cfi_adjust_cfa_offset -56\n"
	"	testq %rax, %rax\n"
	"	jz 1b\n"
	/* A C function may write over the place of its seventh argument, which is our caller's own when it passed fewer: so a copy. */
	"4:	pushq 8(%rsp)\n"
	".cfi_adjust_cfa_offset 8\n"
	"	call rs_syscall_seen\n"
	"	addq $8, %rsp\n"
	".cfi_adjust_cfa_offset -8\n"
	"	ret\n"
	"3:	movq %rax, %rdi\n"
	"	jmp rs_syscall_error\n"
	"8:	jmp *rs_syscall_of_libc(%rip)\n"
	/* A trampoline as those of patched sites (syshook.c). */
	"5:	leaq 7f(%rip), %rcx\n"
	"	jmp rs_syscall_hook\n"
	"7:	syscall\n"
	"	leaq 6b(%rip), %rcx\n"
	"	jmp 6b\n"
	".cfi_endproc\n"
	".size syscall, .-syscall\n");

long rs_syscall_error(long r)
{
	*__errno_location() = (int)-r;
	return -1;
}

static long finish(long r) { return (unsigned long)r > -4096ul ? rs_syscall_error(r) : r; }

/* Is it a fork that rs_syscall_seen can do? If not, it is passed on as it is. */
long rs_syscall_clone(long n, unsigned long a, unsigned long b)
{
	unsigned long flags = a, stack = b, top = b;
	if (n == SYS_vfork) {
		flags = CLONE_VM; /* returns on this thread's storage: as unsafe as a clone that does not wait */
	} else if (n == SYS_clone3) {
		const struct clone_args *args = (const struct clone_args *)a;
		if (!args || b < CLONE_ARGS_SIZE_VER0)
			return 0;
		flags = args->flags;
		stack = args->stack;
		top = stack + args->stack_size;
	}
	if (n != SYS_vfork && stack)
		rs_share_stack(top);
	if (!(flags & CLONE_VM))
		return stack == 0;
	rs_clone_is_safe(flags & (CLONE_VFORK | CLONE_SETTLS) & CLONE_SETTLS ? flags : CLONE_VM);
	if (flags & CLONE_SETTLS)
		rs_patch_threads(false);
	return 0;
}

/* The child of such a fork has glibc's thread storage for its parent's tid: owners of locks would be told wrongly. */
static long unseen_fork(struct rs_thread *t, long n, long a, long b, long c, long d, long e)
{
	const long call[] = {n, a, b, c, d, e};
	long r = rs_share.base && n != SYS_clone3 ? rs_share_fork(call) : RS_PROGRAM5(n, a, b, c, d, e);
	if (r == 0)
		rs_proc_unseen();
	else if (r > 0 && t)
		rs_emit_unfollowed(t, RS_UNFOLLOWED_RAW_CLONE, (pid_t)r, "");
	return finish(r);
}

/* Wake before, wait after the call, as their order demands; so a wake's result is not known. */
static long futex(struct rs_thread *t, long n, long a, long b, long c, long d, long e, long f)
{
	if (!t || !rs_config.all) {
		/* Who waits without a time limit may hang, and that is told with the block in which the word lies. */
		if (t && n == SYS_futex && !d && !rs_guard_on && ((b & OP_MASK) == OP_WAIT || (b & OP_MASK) == OP_WAIT_BITSET))
			rs_object_awaited(t, (uintptr_t)a);
		return finish(RS_PROGRAM6(n, a, b, c, d, e, f));
	}
	uint32_t op = n == SYS_futex ? (uint32_t)b & OP_MASK : 0;
	bool wake = n == 454 || n == 456;
	uintptr_t obj = (uintptr_t)a;
	if (n == 449 || n == 456) {
		const struct futex_wait_on *v = (const struct futex_wait_on *)a;
		obj = v ? (uintptr_t)v->address : 0;
	} else if (n == SYS_futex) {
		wake = op == OP_WAKE || op == OP_WAKE_OP || op == OP_WAKE_BITSET || op == OP_REQUEUE || op == OP_CMP_REQUEUE ||
			op == OP_CMP_REQUEUE_PI || op == OP_UNLOCK_PI;
	}
	if (wake)
		RS_EMIT(t, FUTEX_WAKE, futex_wake, obj, op, 0);
	long r = RS_PROGRAM6(n, a, b, c, d, e, f);
	if (!wake) {
		if (n == 449 && r >= 0)
			obj = (uintptr_t)((const struct futex_wait_on *)a)[r].address;
		RS_EMIT(t, FUTEX_WAIT, futex_wait, obj, op, (uint32_t)(r > 0 ? 0 : r));
	}
	return finish(r);
}

static long exec(long n, int dirfd, const char *path, char *const *argv, char *const *envp, long flags)
{
	struct rs_plan plan;
	if (!path)
		return finish(n == SYS_execve ? RS_PROGRAM3(n, path, argv, envp) : RS_PROGRAM5(n, dirfd, path, argv, envp, flags));
	rs_plan_make(&plan, dirfd, path, false, argv, envp);
	char *const *env = RS_PLAN_ENV(&plan);
	struct rs_thread *t = rs_self();
	if (t) {
		rs_emit_exec(t, path);
		if (plan.why > 0)
			rs_emit_unfollowed(t, plan.why, (pid_t)rs_own_pid, path);
	}
	long r = -E2BIG;
	for (int go = 0; go < 2 && r == -E2BIG; go++, env = envp)
		r = n == SYS_execve ? RS_PROGRAM3(n, path, argv, env) : RS_PROGRAM5(n, dirfd, path, argv, env, flags);
	r = finish(r);
	rs_exec_failed(t, &plan);
	return r;
}

void rs_sandbox(struct rs_thread *t, bool strict)
{
	if (t)
		rs_notice(t, RS_NOTICE_SANDBOXED, 0, strict);
	rs_patch_threads(false);
	rs_cover_all();
	rs_crash_end();
	if (rs_share_on)
		rs_share_retire("it goes into a sandbox: what its threads share is not looked for any more, and races of it are not found");
	__atomic_store_n(&rs_sandboxed, 1, __ATOMIC_RELAXED);
	/* In strict mode even the futex call that wakes the Go side would be the end of the thread. */
	if (strict && rs_thread_tls)
		rs_hold(rs_thread_tls);
}

/* What was said and set before a call that then failed. */
static void not_sandboxed(bool strict)
{
	__atomic_store_n(&rs_sandboxed, 0, __ATOMIC_RELAXED);
	if (strict && rs_thread_tls)
		rs_thread_tls->inside--;
}

/* Runs the call that closes the box. */
static long sandbox(long n, long a, long b, long c, long d, long e, bool strict)
{
	uint32_t before = __atomic_load_n(&rs_sandboxed, __ATOMIC_RELAXED);
	if (rs_ctl)
		rs_sandbox(rs_self(), strict);
	long r = RS_PROGRAM5(n, a, b, c, d, e);
	if (r < 0 && rs_ctl && !before)
		not_sandboxed(strict);
	return finish(r);
}

/* Without the time stamp counter there are no events: to read it would kill this thread, and those that it makes. */
static void leave_clock(struct rs_thread *t)
{
	if (t)
		rs_notice(t, RS_NOTICE_NO_TSC, 0, 0);
	rs_detach();
}

/* named: by prctl(). */
static long do_prctl(long option, long a, long b, long c, long d, bool named)
{
	if (option == PR_SET_SECCOMP)
		return sandbox(SYS_prctl, option, a, b, c, d, a == 1);
	if (option == RS_PR_SET_SYSCALL_USER_DISPATCH)
		return finish(rs_dispatch_prctl(a, b, c, d, named));
	if (option == PR_SET_TSC && a == PR_TSC_SIGSEGV && rs_active)
		leave_clock(rs_self());
	long r = rs_dispatch_on && named ? rs_dispatch_prctl_named(option, a, b, c, d) : RS_PROGRAM5(SYS_prctl, option, a, b, c, d);
	struct rs_thread *t;
	if (option == PR_SET_NAME && r == 0 && (t = rs_self())) {
		size_t n = 0;
		while (n < 15 && ((const char *)a)[n])
			n++;
		uint64_t *w = rs_reserve(t, RS_EV_THREAD_NAME, RS_THREAD_NAME_WORDS + (unsigned)((n + 7) / 8));
		if (w) {
			rs_put_thread_name(w, t->number, n);
			rs_put_bytes(w + RS_THREAD_NAME_WORDS, (const char *)a, n);
			rs_commit(t);
		}
	}
	return finish(r);
}

/* Variadic in the header; the arguments lie in the same registers. */
RS_EXPORT int prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d);
RS_EXPORT int prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d)
{
	return (int)do_prctl(option, (long)a, (long)b, (long)c, (long)d, true);
}

static long set_mask(struct rs_thread *t, long how, const uint64_t *set, uint64_t *old, long size)
{
	long r = rs_patching && !rs_calls_on ? rs_raw_mask(how, set, old, size) : RS_PROGRAM4(SYS_rt_sigprocmask, how, set, old, size);
	if (r == 0 && set && t && rs_config.all)
		rs_sigmask_changed(t, how == 0 ? RS_MASK_HOW_BLOCK : how == 1 ? RS_MASK_HOW_UNBLOCK : RS_MASK_HOW_SET, set == old ? 0 : *set);
	return finish(r);
}

static void sent(struct rs_thread *t, long sig, uint32_t target, long pid)
{
	if (t && rs_config.all && sig)
		RS_EMIT(t, SIGNAL_SEND, signal_send, (uint32_t)sig, target, (uint32_t)pid);
}

void rs_syscall_tells(void)
{
	for (unsigned n = 0; n < sizeof rs_syscall_class; n++)
		if (!rs_syscall_class[n] && (rs_kernel_has(n) || rs_uring_has(n) || n == SYS_close || n == SYS_dup2 || n == SYS_dup3 || n == SYS_close_range || n == SYS_unshare))
			rs_syscall_class[n] = 3;
}

/* A call of class 3. frame: of rs_syscall_seen, which syscall() called with its seventh argument on the stack. */
static long told(const uint64_t *frame, long n, long a, long b, long c, long d, long e, long f)
{
	const long arguments[6] = {a, b, c, d, e, f};
	struct rs_called by = rs_called_by(frame[1], frame[3], frame);
	by.rsp = (uintptr_t)(frame + 4);
	if (n == SYS_close || n == SYS_dup2 || n == SYS_dup3)
		rs_fd_unknown((int)(n == SYS_close ? a : b));
	else if (n == SYS_close_range || (n == SYS_unshare && a & 0x400 /* CLONE_FILES */))
		rs_fd_shared_no_more();
	rs_kernel_reads(&by, (unsigned)n, arguments);
	if (by.t)
		rs_uring_before(&by, (unsigned)n, arguments);
	long r = RS_PROGRAM6(n, a, b, c, d, e, f);
	if (by.t)
		rs_uring_after(&by, (unsigned)n, arguments, r);
	rs_kernel_wrote(&by, (unsigned)n, arguments, r);
	return finish(r);
}

long rs_syscall_seen(long n, long a, long b, long c, long d, long e, long f)
{
	if (rs_syscall_class[n] == 3)
		return told(__builtin_frame_address(0), n, a, b, c, d, e, f);
	struct rs_thread *t = rs_self();
	switch (n) {
	case SYS_exit_group:
		if (t)
			rs_emit_end(t, RS_END_RAW_EXIT, (int)a & 0xff);
		break;
	case SYS_execve:
		return exec(n, -100 /* AT_FDCWD */, (const char *)a, (char *const *)b, (char *const *)c, 0);
	case SYS_execveat:
		return exec(n, (int)a, (const char *)b, (char *const *)c, (char *const *)d, e);
	case SYS_prctl:
		return do_prctl(a, b, c, d, e, false);
	case SYS_seccomp:
		if (a == 0 || a == 1) /* strict, filter */
			return sandbox(n, a, b, c, d, e, a == 0);
		break;
	case SYS_fork:
	case SYS_clone:
	case SYS_clone3:
		return unseen_fork(t, n, a, b, c, d, e);
	case SYS_rt_sigprocmask:
		return set_mask(t, a, (const uint64_t *)b, (uint64_t *)c, d);
	case SYS_rt_sigaction:
		if (rs_patching && !rs_calls_on)
			return finish(rs_raw_action(a, (const struct rs_kernel_action *)b, (struct rs_kernel_action *)c, d));
		break;
	case SYS_kill:
	case SYS_rt_sigqueueinfo:
		sent(t, b, 0, a);
		break;
	case SYS_tkill:
		sent(t, b, t && a == (long)t->tid ? t->number : 0, a);
		break;
	case SYS_tgkill:
	case SYS_rt_tgsigqueueinfo:
		sent(t, c, t && b == (long)t->tid ? t->number : 0, a);
		break;
	default:
		return futex(t, n, a, b, c, d, e, f);
	}
	return finish(RS_PROGRAM6(n, a, b, c, d, e, f));
}
