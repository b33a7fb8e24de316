/* signal.c: handlers and their delivery.
 *
 * In filtered mode the program's handlers are installed as they are. In all mode `signal-enter` and `signal-leave` need code around
 * them, and where code is patched a handler must not see trampolines: the kernel gets the address of a stub that stands for this very handler, for good. So there is no table that could disagree with
 * the kernel, no lock, and what the kernel says about an action stays the truth (SA_RESETHAND, a vfork child's own actions); only the
 * stub's address is put back into the handler's where the program looks. A handler left by siglongjmp sends no signal-leave. */
#include "cover.h"
#include "crash.h"
#include "proc.h"
#include "patch.h"
#include "calls.h"
#include "guardsignal.h"
#include "guardstack.h"
#include "guardthread.h"
#include "race.h"
#include "share.h"
#include "sync.h"
#include "world.h"
#include <errno.h>
#include <time.h>

#define STUBS 512
#define STUB_BYTES 16

/* The address above these bits; 0: free. Never changes once set. */
enum { WANTS_INFO = 1, HAS_INFO = 2, ON_STACK = 4, SHIFT = 3 };
enum { TRAP_BIT = 1 << (SIGTRAP - 1) };
static uintptr_t handlers[STUBS];
bool rs_signals_bare;

__asm__(".text\n.p2align 4\nrs_signal_stubs:\n"
	".set i, 0\n.rept 512\n.p2align 4\n	movl $i, %ecx\n	jmp rs_signal_handler\n.set i, i+1\n.endr\n");
extern char rs_signal_stubs[] __attribute__((visibility("hidden")));
void rs_signal_handler(int sig, siginfo_t *info, void *context, uint32_t stub) __attribute__((visibility("hidden")));

static bool masks_trap(int sig);

/* The program sees its own code and mask; what it changes there counts. The kernel has written no siginfo for a handler that did not ask for it. */
static void patched_handler(int sig, siginfo_t *info, ucontext_t *uc, uintptr_t key)
{
	struct rs_shown shown;
	rs_trap_interrupts(uc);
	bool blocked = rs_trap_blocked(), masked = rs_trapping && masks_trap(sig);
	uintptr_t outer = masked ? rs_trap_enter(__builtin_frame_address(0)) : 0;
	rs_patch_show(uc, key & HAS_INFO ? info : NULL, &shown);
	if (blocked)
		uc->uc_sigmask.__val[0] |= TRAP_BIT;
	((void (*)(int, siginfo_t *, void *))(key >> SHIFT))(sig, info, uc);
	rs_patch_resume(uc, &shown);
	if (masked)
		rs_trap_leave(outer);
	if (rs_trapping) {
		bool now = uc->uc_sigmask.__val[0] & TRAP_BIT;
		uc->uc_sigmask.__val[0] &= ~(unsigned long)TRAP_BIT;
		if (now != rs_trap_blocked())
			rs_trap_block(now);
	}
}

/* What a handler does in the middle of the detector's work could not be judged. So the signal is sent to the thread once more, as it is, and waits, with all others, until that is done. False: the handler is to run
 * now: a fault's signal, a handler that was set for one signal, signals that queue while more of them wait (they would change places), no room in the queue, a program that shut itself in. */
static bool put_off(int sig, siginfo_t *info, ucontext_t *uc, uint32_t stub)
{
	enum { FAULTS = 1 << (SIGILL - 1) | 1 << (SIGTRAP - 1) | 1 << (SIGBUS - 1) | 1 << (SIGFPE - 1) | 1 << (SIGSEGV - 1) | 1 << (SIGSYS - 1), FIRST_QUEUED = 32 };
	struct rs_thread *t = rs_thread_tls;
	struct rs_race_thread *r = t ? t->race : NULL;
	uintptr_t inside = r && r->number == t->number ? rs_race_inside(r) : 0;
	if (!inside || inside < (uintptr_t)uc->uc_mcontext.gregs[REG_RSP] || !(handlers[stub] & HAS_INFO) || rs_sandboxed)
		return false;
	if (sig < FIRST_QUEUED && FAULTS >> (sig - 1) & 1)
		return false;
	struct rs_kernel_action now;
	if (RS_SYS4(SYS_rt_sigaction, sig, NULL, &now, 8) != 0 || now.handler != (uintptr_t)rs_signal_stubs + stub * STUB_BYTES)
		return false;
	uint64_t all = ~((uint64_t)FAULTS | 1ull << (RS_WORLD_SIGNAL - 1)), mask, waiting = 0;
	if (RS_SYS4(SYS_rt_sigprocmask, SIG_BLOCK, &all, &mask, 8) != 0)
		return false;
	bool behind = sig >= FIRST_QUEUED && (RS_SYS2(SYS_rt_sigpending, &waiting, 8) != 0 || waiting >> (sig - 1) & 1);
	if (behind || RS_SYS4(SYS_rt_tgsigqueueinfo, rs_os_pid(), rs_os_tid(), sig, info) != 0) {
		RS_SYS4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, 8);
		return false;
	}
	t->put_off_mask = uc->uc_sigmask.__val[0];
	uc->uc_sigmask.__val[0] |= all;
	rs_race_put_off(r);
	return true;
}

void rs_signal_due(void) { RS_SYS4(SYS_rt_sigprocmask, SIG_SETMASK, &rs_thread_tls->put_off_mask, NULL, 8); }

RS_GENERAL static uint64_t flags_behind(uintptr_t key, uint64_t flags);

/* SA_RESETHAND has set the default action, as the handler was called. */
static __attribute__((noinline)) void set_crash_default(int sig, uintptr_t key, const struct rs_kernel_action *now)
{
	struct sigaction as = {.sa_handler = SIG_DFL}, ours;
	as.sa_flags = (int)flags_behind(key, now->flags);
	as.sa_mask.__val[0] = now->mask;
	if (rs_crash_default(sig, &as, &ours))
		rs_real.sigaction(sig, &ours, NULL);
}

static __attribute__((noinline)) void crash_default(int sig, uintptr_t key)
{
	struct rs_kernel_action now;
	if (RS_SYS4(SYS_rt_sigaction, sig, NULL, &now, 8) == 0 && now.handler == (uintptr_t)SIG_DFL)
		set_crash_default(sig, key, &now);
}

/* What functions that were called have left below is not the same in a recording and in its re-execution, and whatever is called next has it in variables that it does not set: an epoch that ends in a handler would differ in words of stacks. */
#define FORGET_BELOW() RS_CLEAR_BELOW(2048)

static __attribute__((noinline)) void handle(int sig, siginfo_t *info, void *context, uint32_t stub)
{
	struct rs_guard_half half = {.is = false}; /* all of it: what lies in its place is another thing in a re-execution */
	if (rs_config.races && !rs_guard_on && put_off(sig, info, context, stub))
		return;
	struct rs_thread *t = rs_config.all ? rs_self() : NULL;
	if (t) {
		int code = handlers[stub] & HAS_INFO ? info->si_code : 0;
		bool sender = handlers[stub] & HAS_INFO && (code == SI_USER || code == SI_TKILL || code == SI_QUEUE);
		RS_EMIT(t, SIGNAL_ENTER, signal_enter, (uint32_t)sig, (uint32_t)code, sender ? (uint32_t)info->si_pid : 0);
	}
	if (RS_UNLIKELY(rs_guard_on)) {
		rs_guard_signal_begins(&half, context);
		FORGET_BELOW();
	}
	if (rs_crash_takes(sig))
		crash_default(sig, handlers[stub]);
	if (handlers[stub] & HAS_INFO)
		rs_crash_handled(sig, info, context, true);
	if (rs_patching) {
		rs_cover_handler(context);
		patched_handler(sig, info, context, handlers[stub]);
	} else {
		((void (*)(int, siginfo_t *, void *))(handlers[stub] >> SHIFT))(sig, info, context);
	}
	if (handlers[stub] & HAS_INFO)
		rs_crash_handled(sig, info, context, false);
	t = rs_config.all ? rs_self() : NULL;
	if (t)
		RS_EMIT(t, SIGNAL_LEAVE, signal_leave, (uint32_t)sig);
	if (RS_UNLIKELY(rs_guard_on)) {
		rs_guard_signal_over(context, &half);
		RS_CLEAR_BELOW(512); /* of an alternate stack this stays */
	}
}

RS_GUARD_ARRIVES void rs_signal_handler(int sig, siginfo_t *info, void *context, uint32_t stub)
{
	uintptr_t opened = rs_share_on ? rs_share_enter_handler() : 0;
	if (RS_UNLIKELY(rs_guard_on)) {
		uintptr_t key = handlers[stub];
		if (rs_guard_signal(sig, info, context, (uintptr_t)rs_signal_stubs + stub * STUB_BYTES, key & HAS_INFO, key & ON_STACK))
			return;
		if (rs_guard_signal_move(sig, context, stub, key & ON_STACK, handle))
			return;
		FORGET_BELOW();
	}
	handle(sig, info, context, stub);
	if (opened)
		rs_share_leave_handler(opened);
	if (rs_share_on)
		rs_share_leave(context);
}

/* The stub for a handler; the handler itself when there are no more. Lock-free: this may run in a signal handler. */
RS_GENERAL static uintptr_t stub_for(uintptr_t handler, unsigned bits)
{
	uintptr_t key = handler << SHIFT | bits;
	for (unsigned n = 0, i = (unsigned)((key * 0x9e3779b97f4a7c15ull) >> 55) % STUBS; n < STUBS; n++, i = (i + 1) % STUBS) {
		uintptr_t seen = 0;
		if (__atomic_load_n(&handlers[i], __ATOMIC_ACQUIRE) == key ||
			__atomic_compare_exchange_n(&handlers[i], &seen, key, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE) || seen == key)
			return (uintptr_t)rs_signal_stubs + i * STUB_BYTES;
	}
	rs_signals_bare = true;
	return handler;
}

/* 0 if the address is no stub's. */
RS_GENERAL static uintptr_t behind_stub(uintptr_t p)
{
	uintptr_t at = p - (uintptr_t)rs_signal_stubs;
	return at < STUBS * STUB_BYTES ? handlers[at / STUB_BYTES] : 0;
}

bool rs_signal_at_stub(uintptr_t pc) { return pc - (uintptr_t)rs_signal_stubs < STUBS * STUB_BYTES; }

/* The stub's bits of an action, and the flags that the kernel is given. The stub wants to know the sender, and not to be on the program's stack (guardstack.c). But flags outlive the handler that SA_RESETHAND takes away, if what comes then is not ours. */
RS_GENERAL static uint64_t flags_of(int sig, uint64_t flags, unsigned *bits)
{
	*bits = (flags & SA_SIGINFO ? WANTS_INFO : 0) | (flags & SA_ONSTACK ? ON_STACK : 0);
	if (!(flags & (uint32_t)SA_RESETHAND) || rs_crash_takes(sig))
		flags |= SA_SIGINFO | (rs_guard_stack_wanted(sig) ? SA_ONSTACK : 0);
	*bits |= flags & SA_SIGINFO ? HAS_INFO : 0;
	return flags;
}

/* The flags as the program has given them. */
RS_GENERAL static uint64_t flags_behind(uintptr_t key, uint64_t flags)
{
	return flags & ~(uint64_t)((key & WANTS_INFO ? 0 : SA_SIGINFO) | (key & ON_STACK ? 0 : SA_ONSTACK));
}

RS_GENERAL void rs_signal_stacks(bool ours)
{
	struct rs_kernel_action a;
	for (int sig = 1; sig <= 64; sig++) {
		uintptr_t key = RS_SYS4(SYS_rt_sigaction, sig, NULL, &a, 8) == 0 ? behind_stub(a.handler) : 0;
		bool wanted = ours && rs_guard_stack_wanted(sig) && (!(a.flags & (uint32_t)SA_RESETHAND) || rs_crash_takes(sig));
		if (!key || key & ON_STACK || !(a.flags & SA_ONSTACK) == !wanted)
			continue;
		a.flags ^= SA_ONSTACK;
		RS_SYS4(SYS_rt_sigaction, sig, &a, NULL, 8);
	}
}

static void unstub(struct sigaction *sa)
{
	uintptr_t key = behind_stub((uintptr_t)sa->sa_handler);
	if (!key)
		return;
	sa->sa_handler = (rs_sighandler)(key >> SHIFT);
	sa->sa_flags = (int)flags_behind(key, (uint32_t)sa->sa_flags);
}

static bool is_function(rs_sighandler h) { return h != SIG_DFL && h != SIG_IGN && h != SIG_ERR; }

static bool settable(int sig) { return sig >= 1 && sig <= 64 && sig != SIGKILL && sig != SIGSTOP && sig != 32 && sig != 33; }

/* Before the action is in force, so that it is older than the first delivery. */
static void tell(struct rs_thread *t, int sig, int flags, rs_sighandler h)
{
	if (t && settable(sig)) {
		RS_EMIT(t, SIGACTION, sigaction, (uint32_t)sig, (uint32_t)flags, (uintptr_t)h);
		RS_GUARD_FORGET(); /* a re-execution tells nothing */
	}
}

/* Handlers are entered by stubs. */
static bool stubbed(void) { return rs_config.all || rs_patching; }

static bool masks_trap(int sig) { return __atomic_load_n(&rs_trap_masks, __ATOMIC_RELAXED) >> ((sig - 1) & 63) & 1; }

/* mask: that of the new action, NULL if there is none. */
RS_GENERAL static void mask_trap(int sig, const unsigned long *mask, bool *old)
{
	uint64_t bit = 1ull << ((sig - 1) & 63);
	bool now = mask && *mask & TRAP_BIT;
	uint64_t before = !mask ? __atomic_load_n(&rs_trap_masks, __ATOMIC_RELAXED) : now ? __atomic_fetch_or(&rs_trap_masks, bit, __ATOMIC_RELAXED) :
		__atomic_fetch_and(&rs_trap_masks, ~bit, __ATOMIC_RELAXED);
	*old = before & bit;
}

RS_GENERAL void rs_signal_wrap(int sig, struct rs_kernel_action *act, bool *trap_was_masked)
{
	mask_trap(sig, act ? (const unsigned long *)&act->mask : NULL, trap_was_masked);
	if (!act)
		return;
	act->mask &= ~(uint64_t)TRAP_BIT;
	if (act->handler <= 1)
		return;
	unsigned bits;
	uint64_t flags = flags_of(sig, act->flags, &bits), stub = stub_for(act->handler, bits);
	act->flags = stub != act->handler ? flags : act->flags | (flags & SA_SIGINFO);
	act->handler = stub;
}

RS_GENERAL void rs_signal_unwrap(struct rs_kernel_action *old, bool trap_was_masked)
{
	uintptr_t key = behind_stub(old->handler);
	if (key) {
		old->handler = key >> SHIFT;
		old->flags = flags_behind(key, old->flags);
	}
	if (trap_was_masked)
		old->mask |= TRAP_BIT;
}

RS_EXPORT int sigaction(int sig, const struct sigaction *act, struct sigaction *old)
{
	struct rs_thread *t = act ? rs_self() : NULL;
	struct sigaction ours, filtered;
	bool trap_blocked = false;
	if (RS_UNLIKELY(rs_trapping)) {
		if (sig == SIGTRAP)
			return rs_trap_action(act, old);
		if (sig >= 1 && sig <= 64)
			mask_trap(sig, act ? act->sa_mask.__val : NULL, &trap_blocked);
		if (act && act->sa_mask.__val[0] & TRAP_BIT) {
			filtered = *act;
			filtered.sa_mask.__val[0] &= ~(unsigned long)TRAP_BIT;
			act = &filtered;
		}
	}
	if (act && (t || rs_patching)) {
		if (t)
			tell(t, sig, act->sa_flags, act->sa_handler);
		if (stubbed() && is_function(act->sa_handler)) {
			unsigned bits;
			ours = *act;
			ours.sa_flags = (int)flags_of(sig, (uint32_t)act->sa_flags, &bits);
			ours.sa_handler = (rs_sighandler)stub_for((uintptr_t)act->sa_handler, bits);
			if (ours.sa_handler != act->sa_handler)
				act = &ours;
		}
	}
	if (act && t && RS_UNLIKELY(rs_crash_default(sig, act, &ours)))
		act = &ours;
	int r = RS_REAL(sigaction)(sig, act, old);
	if (r == 0 && old) {
		unstub(old);
		if (RS_UNLIKELY(rs_crash_handles((const void *)old->sa_handler)))
			rs_crash_show(sig, old);
		if (trap_blocked)
			old->sa_mask.__val[0] |= TRAP_BIT;
	}
	return r;
}
RS_ALIAS(__sigaction, sigaction);

/* --- the older interfaces --------------------------------------------------------------------------------------------------- */

/* Signals that siginterrupt made interrupting; signal() installs accordingly. A mirror of glibc's own set. */
static uint64_t interrupting;

static rs_sighandler unstubbed(rs_sighandler h)
{
	uintptr_t key = h == SIG_ERR ? 0 : behind_stub((uintptr_t)h);
	if (RS_UNLIKELY(rs_crash_handles((const void *)h)))
		return SIG_DFL;
	return key ? (rs_sighandler)(key >> SHIFT) : h;
}

/* signal() with a stub; flags and mask as the real function would set. */
static rs_sighandler install(int sig, rs_sighandler h, int flags, bool mask_itself)
{
	struct sigaction sa = {.sa_handler = h, .sa_flags = flags}, old;
	sigemptyset(&sa.sa_mask);
	if (mask_itself)
		sigaddset(&sa.sa_mask, sig);
	return sigaction(sig, &sa, &old) < 0 ? SIG_ERR : old.sa_handler;
}

RS_EXPORT rs_sighandler signal(int sig, rs_sighandler h)
{
	struct rs_thread *t = rs_self();
	struct sigaction as = {.sa_handler = h}, ours;
	bool crash = t && RS_UNLIKELY(rs_crash_default(sig, &as, &ours));
	if (!crash && (!(rs_patching || (t && rs_config.all)) || (!is_function(h) && sig != SIGTRAP) || !settable(sig))) {
		if (h != SIG_ERR)
			tell(t, sig, 0, h);
		return unstubbed(RS_REAL(signal)(sig, h));
	}
	bool interrupts = __atomic_load_n(&interrupting, __ATOMIC_RELAXED) >> (sig - 1) & 1;
	return install(sig, h, interrupts ? 0 : SA_RESTART, true);
}
RS_ALIAS(bsd_signal, signal);
RS_ALIAS(ssignal, signal);

RS_EXPORT rs_sighandler __sysv_signal(int sig, rs_sighandler h)
{
	struct rs_thread *t = rs_self();
	if (!(rs_patching || (t && rs_config.all)) || (!is_function(h) && sig != SIGTRAP) || !settable(sig)) {
		if (h != SIG_ERR)
			tell(t, sig, 0, h);
		return unstubbed(RS_REAL(__sysv_signal)(sig, h));
	}
	return install(sig, h, (int)(SA_RESETHAND | SA_NODEFER | SA_INTERRUPT), false);
}
RS_ALIAS(sysv_signal, __sysv_signal);

/* Obsolete; what it installs is not wrapped. */
RS_EXPORT rs_sighandler sigset(int sig, rs_sighandler h)
{
	if (rs_trapping && sig == SIGTRAP && h != SIG_ERR) {
		bool was = rs_trap_blocked();
		struct sigaction sa = {.sa_handler = h}, old;
		rs_trap_action(h == SIG_HOLD ? NULL : &sa, &old);
		rs_trap_block(h == SIG_HOLD);
		return was ? SIG_HOLD : old.sa_handler;
	}
	if (h != SIG_ERR && h != SIG_HOLD)
		tell(rs_self(), sig, 0, h);
	rs_sighandler before = unstubbed(RS_REAL(sigset)(sig, h));
	if (rs_config.all && before != SIG_ERR)
		rs_sigmask_changed(rs_self(), h == SIG_HOLD ? RS_MASK_HOW_BLOCK : RS_MASK_HOW_UNBLOCK, 1ull << (sig - 1));
	return before;
}

RS_EXPORT int sigignore(int sig)
{
	tell(rs_self(), sig, 0, SIG_IGN);
	if (rs_trapping && sig == SIGTRAP)
		return rs_trap_action(&(struct sigaction){.sa_handler = SIG_IGN}, NULL);
	return RS_REAL(sigignore)(sig);
}

/* Changes a flag of the action in force and keeps its handler, a stub too. */
RS_EXPORT int siginterrupt(int sig, int flag)
{
	int r = RS_REAL(siginterrupt)(sig, flag);
	if (r == 0 && flag)
		__atomic_fetch_or(&interrupting, 1ull << (sig - 1), __ATOMIC_RELAXED);
	else if (r == 0)
		__atomic_fetch_and(&interrupting, ~(1ull << (sig - 1)), __ATOMIC_RELAXED);
	return r;
}

/* --- taken without a handler: cancellation points ---------------------------------------------------------------------------- */

static void taken(struct rs_thread *t, int sig, int code)
{
	RS_EMIT(t, SIGNAL_TAKEN, signal_taken, (uint32_t)sig, (uint32_t)code);
}

RS_EXPORT int sigwait(const sigset_t *set, int *sig)
{
	int r = RS_REAL(sigwait)(set, sig);
	struct rs_thread *t;
	if (r == 0 && rs_config.all && (t = rs_self()))
		taken(t, *sig, 0);
	return r;
}

RS_EXPORT int sigtimedwait(const sigset_t *set, siginfo_t *info, const struct timespec *timeout)
{
	struct rs_thread *t = rs_self();
	if (!t || !rs_config.all)
		return RS_REAL(sigtimedwait)(set, info, timeout);
	siginfo_t own = {0};
	siginfo_t *i = info ? info : &own;
	int r = RS_REAL(sigtimedwait)(set, i, timeout);
	if (r > 0)
		taken(t, r, i->si_code);
	return r;
}

RS_EXPORT int sigwaitinfo(const sigset_t *set, siginfo_t *info) { return sigtimedwait(set, info, NULL); }
RS_ALIAS(__sigtimedwait, sigtimedwait);

/* --- sending ------------------------------------------------------------------------------------------------------------------ */

static void sent(int sig, uint32_t target, pid_t pid)
{
	struct rs_thread *t;
	if (rs_config.all && sig && (t = rs_self()))
		RS_EMIT(t, SIGNAL_SEND, signal_send, (uint32_t)sig, target, (uint32_t)pid);
}

static pid_t self_pid(void) { return (pid_t)rs_own_pid; }

RS_EXPORT int kill(pid_t pid, int sig)
{
	sent(sig, 0, pid);
	return RS_REAL(kill)(pid, sig);
}

RS_EXPORT int killpg(pid_t group, int sig)
{
	sent(sig, 0, -group);
	return RS_REAL(killpg)(group, sig);
}

RS_EXPORT int tgkill(pid_t pid, pid_t tid, int sig)
{
	if (rs_config.all) {
		struct rs_thread *t = rs_self();
		sent(sig, t && (uint32_t)tid == t->tid ? t->number : 0, pid);
	}
	return RS_REAL(tgkill)(pid, tid, sig);
}

RS_EXPORT int raise(int sig)
{
	if (rs_config.all) {
		struct rs_thread *t = rs_self();
		sent(sig, t ? t->number : 0, self_pid());
	}
	return RS_REAL(raise)(sig);
}
RS_ALIAS(gsignal, raise);

RS_EXPORT int sigqueue(pid_t pid, int sig, const union sigval value)
{
	sent(sig, 0, pid);
	return RS_REAL(sigqueue)(pid, sig, value);
}

RS_EXPORT int pthread_kill(pthread_t thread, int sig)
{
	if (rs_config.all)
		sent(sig, rs_thread_of(thread), self_pid());
	return RS_REAL(pthread_kill)(thread, sig);
}

/* Before glibc 2.34: ESRCH for a thread that has ended. */
int rs_old_pthread_kill(pthread_t thread, int sig);
RS_EXPORT int rs_old_pthread_kill(pthread_t thread, int sig)
{
	if (rs_config.all)
		sent(sig, rs_thread_of(thread), self_pid());
	return RS_REAL(old_pthread_kill)(thread, sig);
}
RS_OLD(rs_old_pthread_kill, pthread_kill, "GLIBC_2.2.5");

RS_EXPORT int pthread_sigqueue(pthread_t thread, int sig, const union sigval value)
{
	if (rs_config.all)
		sent(sig, rs_thread_of(thread), self_pid());
	return RS_REAL(pthread_sigqueue)(thread, sig, value);
}
