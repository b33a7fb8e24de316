/* proc.c: how processes come to be: fork, _Fork, forkpty, daemon, vfork, clone. Belongs here: what must happen to the agent's state in parent and
 * child. Not: exec and spawn (exec.c, spawn.c), the end of a process (exit.c).
 *
 * fork's child is taken over in an atfork handler and not after fork returned: handlers of the program run inside fork and use locks,
 * and glibc forks by itself in forkpty and others. Ours is registered first, so it runs first in parent and child and last before. */
#include "proc.h"
#include "loader.h"
#include "cover.h"
#include "dispatch.h"
#include "guardfork.h"
#include "race.h"
#include "alloc.h"
#include "patch.h"
#include "share.h"
#include "fd.h"
#include <errno.h>
#include <fcntl.h>
#include <pty.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/poll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

__thread struct rs_vfork rs_vfork __attribute__((tls_model("initial-exec"), visibility("hidden")));
RS_TLS uint32_t fork_inside; /* `inside` of the forking thread before the fork */
uint32_t rs_own_pid;

/* --- latches --------------------------------------------------------------------------------------------------- */

void rs_latch_take(struct rs_latch *l)
{
	uint32_t v = 0;
	if (__atomic_compare_exchange_n(&l->word, &v, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return;
	while (__atomic_exchange_n(&l->word, 2, __ATOMIC_ACQUIRE) != 0)
		RS_SYS4(SYS_futex, &l->word, 128 /* WAIT_PRIVATE */, 2, NULL);
}

void rs_latch_give(struct rs_latch *l)
{
	if (__atomic_exchange_n(&l->word, 0, __ATOMIC_RELEASE) == 2)
		RS_SYS3(SYS_futex, &l->word, 129 /* WAKE_PRIVATE */, 1);
}

/* --- the session ------------------------------------------------------------------------------------------------------------ */

bool rs_session_over(void)
{
	if (!rs_ctl || __atomic_load_n(&rs_ctl->closing, __ATOMIC_RELAXED))
		return true;
	struct { int64_t s, ns; } now;
	if (RS_SYS2(SYS_clock_gettime, 1 /* MONOTONIC */, &now) < 0)
		return false;
	uint32_t ms = (uint32_t)(now.s * 1000 + now.ns / 1000000);
	if (ms - __atomic_load_n(&rs_ctl->heartbeat_ms, __ATOMIC_RELAXED) < 1000)
		return false;
	/* Stale: a busy machine, or nobody there. Readable means dead, a zombie too. In another pid namespace it cannot be told. */
	long fd = RS_SYS2(434 /* pidfd_open */, rs_ctl->go_pid, 0);
	if (fd < 0)
		return fd == -ESRCH;
	struct pollfd p = {.fd = (int)fd, .events = POLLIN};
	long r = RS_SYS3(SYS_poll, &p, 1, 0);
	RS_SYS1(SYS_close, fd);
	return r == 1;
}

void rs_proc_unseen(void)
{
	__atomic_store_n(&rs_active, 0, __ATOMIC_RELAXED);
	rs_thread_tls = NULL;
	rs_own_pid = (uint32_t)RS_SYS0(SYS_getpid);
}

/* --- fork -------------------------------------------------------------------------------------------------------------------- */

static void before_fork(void)
{
	rs_cover_all(); /* the child of a process that is patched asks nobody */
	rs_guard_out(RS_GUARD_LOST_PROCESS);
	rs_guard_fork_begins();
	rs_race_fork_begins();
	struct rs_thread *t = rs_thread_tls;
	rs_alloc_before_fork();
	rs_patch_before_fork();
	rs_share_before_fork();
	if (rs_ctl)
		__atomic_fetch_add(&rs_ctl->forks, 1, __ATOMIC_RELAXED);
	if (!t)
		return;
	/* A handler that ran in the child before rs_init_after_fork would write to the parent's rings. */
	fork_inside = t->inside;
	rs_hold(t);
}

static void parent_after_fork(void)
{
	struct rs_thread *t = rs_thread_tls;
	rs_share_after_fork(false);
	rs_alloc_after_fork(false);
	if (t)
		t->inside = fork_inside;
	rs_guard_in();
}

/* A fork in a vfork child has that child for its parent, which we do not see. */
static void child_after_fork(void)
{
	rs_own_pid = (uint32_t)RS_SYS0(SYS_getpid);
	rs_guard_forget();
	rs_dispatch_after_fork();
	rs_alloc_after_fork(true);
	rs_popen_after_fork();
	rs_system_after_fork();
	rs_atexit_after_fork();
	rs_patch_after_fork();
	rs_loader_after_fork();
	rs_share_after_fork(true);
	bool of_vfork = rs_vfork.depth > 0;
	rs_vfork = (struct rs_vfork){0};
	if (!rs_ctl)
		return;
	if (of_vfork || !rs_config.follow) {
		rs_proc_unseen();
	} else {
		uint32_t inside = fork_inside;
		rs_init_after_fork();
		if (rs_thread_tls)
			rs_thread_tls->inside = inside;
	}
	rs_guard_fork_child();
}

__attribute__((constructor)) static void start(void)
{
	rs_init();
	rs_own_pid = (uint32_t)RS_SYS0(SYS_getpid);
	if (!rs_ctl)
		return;
	RS_REAL(__register_atfork)(before_fork, parent_after_fork, child_after_fork, NULL);
	rs_exit_start();
}

void rs_emit_fork(struct rs_thread *t, pid_t pid, uint32_t stack)
{
	RS_EMIT(t, FORK, fork, (uint32_t)pid, stack);
}

/* Of a child that is a copy of this process, not yet of another program. */
static void emit_copy(struct rs_thread *t, pid_t pid, uint32_t stack)
{
	rs_emit_fork(t, pid, stack);
	if (!rs_config.follow)
		rs_emit_unfollowed(t, RS_UNFOLLOWED_TURNED_OFF, pid, "");
	else if (rs_sandboxed)
		rs_emit_unfollowed(t, RS_UNFOLLOWED_SANDBOX, pid, "");
}

void rs_emit_unfollowed(struct rs_thread *t, int why, pid_t pid, const char *path)
{
	size_t n = 0;
	for (const char *s = path; *s && n < MAX_PATH_TOLD; s++)
		n++;
	uint64_t *w = rs_reserve(t, RS_EV_UNFOLLOWED, RS_UNFOLLOWED_WORDS + (unsigned)((n + 7) / 8));
	if (!w)
		return;
	rs_put_unfollowed(w, (uint8_t)why, (uint32_t)pid, n);
	rs_put_bytes(w + RS_UNFOLLOWED_WORDS, path, n);
	rs_commit(t);
}

RS_EXPORT pid_t fork(void)
{
	struct rs_thread *t = rs_self();
	if (!t)
		return RS_REAL(fork)();
	uint32_t stack = RS_STACK(t);
	rs_loader_behind();
	pid_t pid = rs_real.fork();
	if (pid > 0)
		emit_copy(t, pid, stack);
	return pid;
}
RS_ALIAS(__fork, fork);
RS_ALIAS(__libc_fork, fork);

/* No atfork handlers run here. */
RS_EXPORT pid_t _Fork(void)
{
	struct rs_thread *t = rs_self();
	uint32_t stack = t ? RS_STACK(t) : 0;
	before_fork();
	pid_t pid = RS_REAL(_Fork)();
	if (pid == 0)
		child_after_fork();
	else
		parent_after_fork();
	if (t && pid > 0)
		emit_copy(t, pid, stack);
	return pid;
}

RS_EXPORT int forkpty(int *master, char *name, const struct termios *termp, const struct winsize *winp)
{
	struct rs_thread *t = rs_self();
	if (!t)
		return RS_REAL(forkpty)(master, name, termp, winp);
	uint32_t stack = RS_STACK(t);
	rs_loader_behind();
	int pid = rs_real.forkpty(master, name, termp, winp);
	if (pid > 0)
		emit_copy(t, pid, stack);
	return pid;
}

/* The real one would leave without a word in the parent: it forks and ends inside glibc. */
RS_EXPORT int daemon(int nochdir, int noclose)
{
	struct rs_thread *t = rs_self();
	if (!t)
		return RS_REAL(daemon)(nochdir, noclose);
	uint32_t stack = RS_STACK(t);
	rs_loader_behind();
	pid_t pid = RS_REAL(fork)();
	if (pid > 0) {
		emit_copy(t, pid, stack);
		_exit(0);
	}
	long r = pid < 0 ? -errno : RS_PROGRAM1(SYS_setsid, 0), fd = -1;
	if (r >= 0 && !nochdir)
		RS_PROGRAM1(SYS_chdir, "/");
	if (r >= 0 && !noclose) {
		struct stat st;
		fd = RS_PROGRAM4(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR, 0);
		r = fd < 0 ? -EBADF /* by glibc's own close of it */ : RS_PROGRAM2(SYS_fstat, fd, &st);
		if (r >= 0 && (!S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, 3)))
			r = -ENODEV;
		for (int i = 0; r >= 0 && i < 3; i++) {
			rs_channel_forget(i);
			RS_PROGRAM2(SYS_dup2, fd, i);
		}
		if (fd > 2 || (fd >= 0 && r < 0))
			RS_PROGRAM1(SYS_close, fd);
	}
	if (r < 0)
		errno = (int)-r;
	return r < 0 ? -1 : 0;
}

/* --- vfork ------------------------------------------------------------------------------------------------------------------- */

bool rs_in_vfork(void)
{
	return rs_vfork.depth > 0 || (rs_own_pid != 0 && (uint32_t)RS_SYS0(SYS_getpid) != rs_own_pid);
}

void rs_vfork_enter(void)
{
	rs_guard_out(RS_GUARD_LOST_PROCESS);
	struct rs_thread *t = rs_self();
	if (!t)
		t = rs_thread_tls;
	if (t)
		rs_hold(t);
	rs_race_fork_begins();
	rs_share_spawn(true);
	if (rs_vfork.depth++ == 0)
		rs_trap_vfork();
	rs_dispatch_vfork();
}

void rs_vfork_leave(void)
{
	struct rs_thread *t = rs_thread_tls;
	if (--rs_vfork.depth == 0)
		rs_trap_vforked();
	rs_share_spawn(false);
	if (t && t->inside)
		t->inside--;
	if (rs_vfork.map) {
		RS_SYS2(SYS_munmap, rs_vfork.map, rs_vfork.map_bytes);
		rs_vfork.map = NULL;
	}
	rs_guard_in();
}

extern int *__errno_location(void) __attribute__((const));

/* In the parent, when the child has become another program or ended. r is the kernel's result. */
long rs_vfork_parent(long r, uintptr_t pc, void *frame) __attribute__((visibility("hidden")));
long rs_vfork_parent(long r, uintptr_t pc, void *frame)
{
	rs_dispatch_vfork_over();
	rs_vfork_leave();
	int why = rs_vfork.why;
	rs_vfork.why = 0;
	if (r < 0) {
		*__errno_location() = (int)-r;
		return -1;
	}
	struct rs_thread *t = rs_self();
	if (t) {
		rs_emit_fork(t, (pid_t)r, rs_stack_from(t, pc, frame, rs_config.stack_depth));
		if (why > 0)
			rs_emit_unfollowed(t, why, (pid_t)r, "");
	}
	return r;
}

/* vfork returns twice on one stack: what the child pushes lies where the parent's frames would be. So nothing is left on the stack
 * over the system call, and the return address is kept in a register that the kernel preserves. */
__asm__(".text\n.p2align 4\n.globl vfork\n.type vfork, @function\nvfork:\n"
	".cfi_startproc\n"
	"	subq $8, %rsp\n"
	".cfi_adjust_cfa_offset 8\n"
	"	call rs_vfork_enter\n"
	"	addq $8, %rsp\n"
	".cfi_adjust_cfa_offset -8\n"
	"	popq %rdi\n"
	".cfi_adjust_cfa_offset -8\n"
	".cfi_register %rip, %rdi\n"
	"	movl $58, %eax\n"
	"	cmpl $0, rs_calls_on(%rip)\n"
	"	jne 3f\n"
	"2:	syscall\n"
	"	leaq 4f(%rip), %rcx\n" /* a trampoline as those of patched sites (syshook.c) */
	"4:	pushq %rdi\n"
	".cfi_adjust_cfa_offset 8\n"
	".cfi_rel_offset %rip, 0\n"
	"	testq %rax, %rax\n"
	"	jz 1f\n"
	"	pushq %rbp\n"
	".cfi_adjust_cfa_offset 8\n"
	".cfi_rel_offset %rbp, 0\n"
	"	movq %rsp, %rbp\n"
	".cfi_def_cfa_register %rbp\n"
	"	movq %rax, %rdi\n"
	"	movq 8(%rsp), %rsi\n"
	"	movq %rsp, %rdx\n"
	"	call rs_vfork_parent\n"
	"	popq %rbp\n"
	".cfi_def_cfa %rsp, 8\n"
	".cfi_restore %rbp\n"
	"1:	ret\n"
	".cfi_def_cfa %rsp, 0\n"
	".cfi_register %rip, %rdi\n"
	"3:	leaq 2b(%rip), %rcx\n"
	"	jmp rs_syscall_hook\n"
	".cfi_endproc\n"
	".size vfork, .-vfork\n"
	".globl __vfork\n.set __vfork, vfork\n");

/* --- clone ------------------------------------------------------------------------------------------------------------------- */

bool rs_clone_is_safe(unsigned long flags)
{
	if (!(flags & CLONE_VM) || (flags & (CLONE_VFORK | CLONE_SETTLS)))
		return true;
	struct rs_thread *t = rs_self();
	if (t)
		rs_notice(t, RS_NOTICE_THREAD_UNSEEN, 0, flags);
	if (rs_ctl)
		rs_detach();
	return false;
}

struct clone_start { int (*fn)(void *); void *arg; uintptr_t stack; /* 0: the one it begins on */ };

/* The child has a copy of all memory, of the frame with `start` too, and thread storage as glibc left it for another tid. */
static int unseen_start(void *p)
{
	struct clone_start *s = p;
	rs_guard_forget();
	rs_alloc_after_fork(true);
	rs_patch_after_fork();
	rs_loader_after_fork();
	rs_share_after_fork(true);
	rs_proc_unseen();
	rs_guard_fork_child();
	return s->stack ? rs_share_clone_on(s->stack, s->fn, s->arg) : s->fn(s->arg);
}

RS_EXPORT int clone(int (*fn)(void *), void *stack, int flags, void *arg, ...)
{
	va_list ap;
	va_start(ap, arg); /* not all are passed; what is not is not used either */
	void *ptid = va_arg(ap, void *), *tls = va_arg(ap, void *), *ctid = va_arg(ap, void *);
	va_end(ap);
	if (!rs_ctl || !fn || !stack)
		return RS_REAL(clone)(fn, stack, flags, arg, ptid, tls, ctid);
	rs_share_stack((uintptr_t)stack);
	if ((flags & CLONE_VM) && (flags & CLONE_VFORK) && !(flags & CLONE_SETTLS)) {
		struct rs_thread *t = rs_self();
		rs_vfork_enter();
		int pid = RS_REAL(clone)(fn, stack, flags, arg, ptid, tls, ctid);
		rs_vfork_leave();
		if (t && pid > 0) {
			rs_emit_fork(t, pid, RS_STACK(t));
			if (rs_vfork.why > 0)
				rs_emit_unfollowed(t, rs_vfork.why, pid, "");
		}
		rs_vfork.why = 0;
		return pid;
	}
	if (flags & CLONE_VM) {
		rs_guard_off();
		rs_clone_is_safe((unsigned)flags);
		rs_patch_threads(false);
		return RS_REAL(clone)(fn, stack, flags, arg, ptid, tls, ctid);
	}
	enum { BEGIN = 64 << 10 };
	struct clone_start s = {fn, arg, 0}, *start = &s;
	struct rs_thread *t = rs_self();
	/* Where memory is watched the child has its stack, and this one, in common with us at first. */
	char *begin = rs_share.base ? rs_os_map(BEGIN) : NULL;
	if (begin) {
		s.stack = (uintptr_t)stack;
		start = (struct clone_start *)begin;
		*start = s;
		stack = begin + BEGIN;
	}
	before_fork();
	int pid = RS_REAL(clone)(unseen_start, stack, flags, start, ptid, tls, ctid);
	parent_after_fork();
	if (begin)
		rs_os_unmap(begin, BEGIN);
	if (t && pid > 0)
		rs_emit_unfollowed(t, RS_UNFOLLOWED_RAW_CLONE, pid, "");
	return pid;
}
RS_ALIAS(__clone, clone);
