/* sigraw.c: rt_sigaction and rt_sigprocmask that the program makes as system calls: by syscall(), or by an instruction of its own (Go's runtime), which the engine has led to the hook
 * (syshook.c). They must not take SIGTRAP away, nor enter handlers past the stubs.
 *
 * Ground rules: as rs_call_before; general registers only, no libc. */
#include "proc.h"
#include "patch.h"
#include "calls.h"
#include "share.h"
#include <errno.h>
#include <signal.h>
#include <sys/uio.h>

enum { SIGSET = 8, TRAP_BIT = 1 << (SIGTRAP - 1) };

/* Copies from and to where the program says, which may be nowhere. */
RS_GENERAL static bool copy(long call, void *ours, const void *theirs, size_t n)
{
	struct iovec o = {ours, n}, t = {(void *)(uintptr_t)theirs, n};
	return RS_SYS6(call, rs_os_tid(), &o, 1, &t, 1, 0) == (long)n;
}
#define FETCH(to, from) copy(SYS_process_vm_readv, &(to), from, sizeof(to))
#define STORE(to, from) copy(SYS_process_vm_writev, &(from), to, sizeof(from))

RS_GENERAL static bool ours(long size) { return rs_trapping && !rs_sandboxed && size == SIGSET; }

RS_GENERAL long rs_raw_action(long sig, const struct rs_kernel_action *act, struct rs_kernel_action *old, long size)
{
	struct rs_kernel_action a = {0, 0, 0, 0}, was = {0, 0, 0, 0};
	bool masked = false;
	if (!ours(size) || sig < 1 || sig > 64 || (act && !FETCH(a, act)))
		return RS_SYS4(SYS_rt_sigaction, sig, act, old, size);
	if (sig == SIGTRAP) {
		long r = rs_trap_raw(act ? &a : NULL, &was);
		return r == 0 && old && !STORE(old, was) ? -EFAULT : r;
	}
	if (rs_share_on && sig == SIGSEGV) {
		long r = rs_share_action(act ? &a : NULL, &was);
		return r == 0 && old && !STORE(old, was) ? -EFAULT : r;
	}
	if (rs_share_on)
		a.mask &= ~(1ull << (SIGSEGV - 1));
	if (sig != SIGKILL && sig != SIGSTOP)
		rs_signal_wrap((int)sig, act ? &a : NULL, &masked);
	long r = RS_SYS4(SYS_rt_sigaction, sig, act ? &a : NULL, old ? &was : NULL, size);
	if (r != 0 || !old)
		return r;
	rs_signal_unwrap(&was, masked);
	return STORE(old, was) ? 0 : -EFAULT;
}

RS_GENERAL long rs_raw_mask(long how, const uint64_t *set, uint64_t *old, long size)
{
	uint64_t asked = 0, room, was = 0;
	if (!ours(size) || (set && !FETCH(asked, set)))
		return RS_SYS4(SYS_rt_sigprocmask, how, set, old, size);
	bool blocked = rs_trap_blocked(), named = asked & TRAP_BIT;
	room = asked & ~(uint64_t)(TRAP_BIT | (rs_share_on ? 1 << (SIGSEGV - 1) : 0));
	long r = RS_SYS4(SYS_rt_sigprocmask, how, set ? &room : NULL, old ? &was : NULL, size);
	if (r != 0)
		return r;
	/* In a vfork child that nobody saw begin, what is noted would be its parent's for good. */
	if (set && (rs_vfork.depth > 0 || !rs_in_vfork()) && (how == SIG_SETMASK ? blocked != named : named))
		rs_trap_block(how != SIG_UNBLOCK && named);
	if (!old)
		return 0;
	if (blocked)
		was |= TRAP_BIT;
	return STORE(old, was) ? 0 : -EFAULT;
}
