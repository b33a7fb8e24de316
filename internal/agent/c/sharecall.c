/* sharecall.c: system calls where memory is watched (share.h). The kernel honours a thread's protection keys, so every call is made with all of them open; and it must not be made to
 * block SIGSEGV, nor be given another action for it.
 *
 * Ground rules: as rs_call_before's (calls.h). */
#include "share.h"
#include "called.h"
#include "patch.h"
#include "proc.h"
#include <asm/prctl.h>
#include <errno.h>
#include <sched.h>

enum { SEGV_BIT = 1 << (SIGSEGV - 1), INITIAL = 0x55555554 }; /* INITIAL: the rights of a new process */

/* Calls in which a thread may be for long. */
static const uint16_t waiting[] = {SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_poll, SYS_ppoll, SYS_select, SYS_pselect6, SYS_epoll_wait, SYS_epoll_pwait, 441 /* epoll_pwait2 */, SYS_nanosleep,
	SYS_clock_nanosleep, SYS_futex, SYS_accept, SYS_accept4, SYS_connect, SYS_recvfrom, SYS_recvmsg, SYS_recvmmsg, SYS_sendto, SYS_sendmsg, SYS_wait4, SYS_waitid, SYS_pause, SYS_rt_sigsuspend,
	SYS_rt_sigtimedwait, SYS_flock, SYS_msgrcv, SYS_msgsnd, SYS_semop, SYS_semtimedop, SYS_mq_timedreceive, SYS_io_getevents, SYS_io_uring_enter, SYS_fsync, SYS_fdatasync};
static bool waits[RS_CALL_ROWS];

/* What comes by the hook from code of ours are calls of the program's: syscall(). */
static bool of_agent(uintptr_t pc)
{
	extern const char __ehdr_start[] RS_HIDDEN, etext[] RS_HIDDEN;
	return pc >= (uintptr_t)__ehdr_start && pc < (uintptr_t)etext;
}

/* libc's mappings are its own, where vm.c does not say otherwise. */
static void mapped(struct rs_call *c)
{
	if (c->number == SYS_mmap && c->result > 0 && (!rs_left_out(c->next) || of_agent(c->next)))
		c->result = (long)rs_share_mapped((void *)c->result, c->arg[1], (int)c->arg[2], (int)c->arg[3], (const void *)c->arg[0]);
}

void rs_share_calls(void)
{
	/* They come back on another stack, with another fs, or not at all. */
	static const uint16_t pass[] = {SYS_clone3, SYS_vfork, SYS_exit, SYS_exit_group, SYS_rt_sigreturn};
	for (unsigned i = 0; i < RS_CALL_ROWS; i++)
		rs_call_class[i] = RS_CALL_SEE;
	for (unsigned i = 0; i < sizeof pass / sizeof *pass; i++)
		rs_call_class[pass[i]] = RS_CALL_PASS;
	for (unsigned i = 0; i < sizeof waiting / sizeof *waiting; i++)
		waits[waiting[i]] = true;
	rs_hook_on = 1;
}

/* A set of signals without SIGSEGV, in the frame's spare word; what cannot be read is for the kernel to refuse. */
static void filter_set(struct rs_call *c, unsigned arg)
{
	const uint64_t *set = (const uint64_t *)c->arg[arg];
	if (!set || RS_SYS4(SYS_rt_sigprocmask, -1, set, NULL, 8) != -EINVAL || !(*set & SEGV_BIT))
		return;
	c->spare = *set & ~(uint64_t)SEGV_BIT;
	c->arg[arg] = (uint64_t)&c->spare;
}

static void mask(struct rs_call *c, long *made)
{
	long how = (long)(int)c->arg[0];
	const uint64_t *set = (const uint64_t *)c->arg[1];
	bool named = set && RS_SYS4(SYS_rt_sigprocmask, -1, set, NULL, 8) == -EINVAL && *set & SEGV_BIT;
	bool readable = set && (named || RS_SYS4(SYS_rt_sigprocmask, -1, set, NULL, 8) == -EINVAL);
	uint64_t *old = (uint64_t *)c->arg[2];
	bool was = rs_share_blocked();
	filter_set(c, 1);
	long r = RS_SYS4(SYS_rt_sigprocmask, how, c->arg[1], old, c->arg[3]);
	if (r == 0 && old && was)
		*old |= SEGV_BIT;
	if (r == 0 && readable && (how == SIG_SETMASK || named))
		rs_share_blocks(how != SIG_UNBLOCK && named);
	c->result = r;
	*made = 0;
}

static void action(struct rs_call *c, long *made)
{
	RS_TLS struct rs_kernel_action room;
	const struct rs_kernel_action *act = (const struct rs_kernel_action *)c->arg[1];
	if (act && RS_SYS4(SYS_rt_sigprocmask, -1, act, NULL, 8) != -EINVAL)
		return;
	if (c->arg[0] == SIGSEGV && !rs_in_vfork()) {
		c->result = rs_share_action(act, (struct rs_kernel_action *)c->arg[2]);
		*made = 0;
	} else if (act && act->mask & SEGV_BIT) {
		room = *act;
		room.mask &= ~(uint64_t)SEGV_BIT;
		c->arg[1] = (uint64_t)&room;
	}
}

/* The program sees none where ours is in use, and gets ours back when it gives its own up. */
static void alternate(struct rs_call *c, long *made)
{
	const stack_t *want = (const stack_t *)c->arg[0], *spare = rs_share_spare();
	stack_t now;
	if (want && (rs_share_has((uintptr_t)want) || rs_share_bits((uintptr_t)want) & SHARE_GLOBAL || RS_SYS4(SYS_rt_sigprocmask, -1, want, NULL, 8) == -EINVAL))
		rs_share_unwatch((uintptr_t)want->ss_sp, want->ss_size);
	else if (want)
		return; /* for the kernel to refuse */
	if (!spare || RS_SYS2(SYS_sigaltstack, NULL, &now) < 0)
		return;
	stack_t *old = (stack_t *)c->arg[1];
	c->result = RS_SYS2(SYS_sigaltstack, want && want->ss_flags & SS_DISABLE ? spare : want, old);
	if (c->result == 0 && old && now.ss_sp == spare->ss_sp) {
		old->ss_sp = NULL;
		old->ss_size = 0;
		old->ss_flags = SS_DISABLE;
	}
	*made = 0;
}

/* Calls that libc makes for the program. */
static void of_libc(struct rs_call *c, long *made)
{
	switch (c->number) {
	case SYS_rt_sigprocmask:
		mask(c, made);
		break;
	case SYS_rt_sigaction:
		action(c, made);
		break;
	case SYS_rt_sigsuspend:
		filter_set(c, 0);
		break;
	case SYS_ppoll:
		filter_set(c, 3);
		break;
	case SYS_epoll_pwait:
	case 441: /* epoll_pwait2 */
		filter_set(c, 4);
		break;
	}
}

/* Code that is patched asks the table, which says of no page any more that it is reached by GS. Each thread has its own base, a new one its maker's: it is put back by whoever asks for it. */
void rs_share_taken(void)
{
	uintptr_t base;
	if (rs_share_on) {
		rs_share_retire("it uses GS or protection keys itself: what its threads share is not looked for any more, and races of it are not found");
		share_set_rights(INITIAL);
	}
	if (RS_SYS2(SYS_arch_prctl, ARCH_GET_GS, &base) == 0 && base == rs_share.away)
		RS_SYS2(SYS_arch_prctl, ARCH_SET_GS, 0);
}

/* Of other segments it is made at the site: behind one that sets fs the thread has no variables of ours. */
static void segment(struct rs_call *c, long *made)
{
	*made = 2;
	if ((int)c->arg[0] != ARCH_SET_GS && (int)c->arg[0] != ARCH_GET_GS)
		return;
	rs_share_taken();
	c->result = RS_SYS2(SYS_arch_prctl, c->arg[0], c->arg[1]);
	*made = 0;
}

/* A thread comes back on another stack, so its call is made at the site, and so is that of a child with a stack of its own (proc.c has clone()). */
bool rs_share_process(struct rs_call *c, long *made)
{
	const long call[] = {(long)c->number, (long)c->arg[0], (long)c->arg[1], (long)c->arg[2], (long)c->arg[3], (long)c->arg[4]};
	if (c->number == SYS_arch_prctl) {
		segment(c, made);
		return true;
	}
	if (c->number != SYS_fork && c->number != SYS_clone)
		return false;
	*made = 2;
	if (c->number == SYS_clone && (c->arg[0] & (CLONE_VM | CLONE_VFORK) || c->arg[1]))
		return true;
	c->result = rs_share_fork(call);
	*made = 0;
	return true;
}

bool rs_share_before(struct rs_call *c, long *made)
{
	/* The program's own instructions have what sigraw.c does, which closes behind itself. */
	if ((c->number == SYS_rt_sigprocmask || c->number == SYS_rt_sigaction) && !rs_left_out(c->next))
		return false;
	uint32_t rights = share_rights();
	share_set_rights(0);
	*made = 1;
	c->start = 1; /* rs_call_after need not look for more */
	switch (c->number) {
	case SYS_sigaltstack:
		alternate(c, made);
		break;
	case SYS_pkey_alloc:
	case SYS_pkey_mprotect:
		rs_share_taken();
		return true;
	default:
		rs_share_memory(c, made);
		if (!*made)
			mapped(c);
	}
	if (*made && rs_left_out(c->next))
		of_libc(c, made);
	if (*made && c->number < RS_CALL_ROWS && waits[c->number])
		rs_share_go(rights);
	if (!*made && !rs_share_opened((uintptr_t)c))
		rs_share_close();
	return true;
}

bool rs_share_after(struct rs_call *c)
{
	mapped(c);
	if (!rs_share_opened((uintptr_t)c))
		rs_share_close();
	return true;
}
