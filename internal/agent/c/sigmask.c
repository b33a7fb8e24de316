/* sigmask.c: signal masks. [all] only: in filtered mode each function is the real one behind one branch.
 *
 * `sigmask` goes out after the call and says the whole mask that is in force, so a reader needs no history, and one change that is not
 * seen (siglongjmp, setcontext) does no harm for long. Works in signal handlers; nothing is held over the waits, which are cancellation points. */
#include "proc.h"
#include "patch.h"
#include <errno.h>

static uint64_t bit(int sig) { return sig >= 1 && sig <= 64 ? 1ull << (sig - 1) : 0; }

/* What can be blocked: not SIGKILL and SIGSTOP, nor what glibc keeps for itself. */
static uint64_t possible(uint64_t mask) { return mask & ~(bit(SIGKILL) | bit(SIGSTOP) | bit(32) | bit(33)); }

static bool mask_now(uint64_t *mask) { return RS_SYS4(SYS_rt_sigprocmask, SIG_BLOCK, NULL, mask, 8) == 0; }

static void tell(struct rs_thread *t, unsigned how, uint64_t set, uint64_t mask)
{
	RS_EMIT(t, SIGMASK, sigmask, (uint8_t)how, set, mask);
}

void rs_sigmask_changed(struct rs_thread *t, unsigned how, uint64_t set)
{
	uint64_t mask;
	if (t && rs_config.all && !rs_sandboxed && mask_now(&mask))
		tell(t, how, set, mask);
}

/* --- sigprocmask --------------------------------------------------------------------------------------------------------------------- */

static struct rs_thread *thread_for(const sigset_t *set) { return rs_config.all && set ? rs_self() : NULL; }

static void changed(struct rs_thread *t, int how, uint64_t set, uint64_t old)
{
	switch (how) {
	case SIG_BLOCK:
		tell(t, RS_MASK_HOW_BLOCK, set, old | possible(set));
		break;
	case SIG_UNBLOCK:
		tell(t, RS_MASK_HOW_UNBLOCK, set, old & ~set);
		break;
	case SIG_SETMASK:
		tell(t, RS_MASK_HOW_SET, set, possible(set));
		break;
	}
}

/* Where SIGTRAP is ours (trap.c). */
static int trapping_mask(int how, const sigset_t *set, sigset_t *old, int (*real)(int, const sigset_t *, sigset_t *))
{
	sigset_t room = {{0}}, own = {{0}}, *o = old ? old : &own;
	bool was = rs_trap_blocked(), named = set && set->__val[0] & bit(SIGTRAP);
	uint64_t asked = set ? set->__val[0] : 0;
	int r = real(how, rs_trap_filter(set, &room), o);
	if (r != 0)
		return r;
	struct rs_thread *t = thread_for(set);
	if (t)
		changed(t, how, asked, o->__val[0] | (was ? bit(SIGTRAP) : 0));
	if (was)
		o->__val[0] |= bit(SIGTRAP);
	if (set && how == SIG_SETMASK ? was != named : named)
		rs_trap_block(how != SIG_UNBLOCK && named);
	return r;
}

/* The set is read before the call, which may write the old mask over it. glibc reads it too. */
RS_EXPORT int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	if (RS_UNLIKELY(rs_trapping))
		return trapping_mask(how, set, old, RS_REAL(pthread_sigmask));
	struct rs_thread *t = thread_for(set);
	if (!t)
		return RS_REAL(pthread_sigmask)(how, set, old);
	sigset_t own = {{0}};
	uint64_t asked = set->__val[0];
	sigset_t *o = old ? old : &own;
	int r = RS_REAL(pthread_sigmask)(how, set, o);
	if (r == 0)
		changed(t, how, asked, o->__val[0]);
	return r;
}

RS_EXPORT int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	if (RS_UNLIKELY(rs_trapping))
		return trapping_mask(how, set, old, RS_REAL(sigprocmask));
	struct rs_thread *t = thread_for(set);
	if (!t)
		return RS_REAL(sigprocmask)(how, set, old);
	sigset_t own = {{0}};
	uint64_t asked = set->__val[0];
	sigset_t *o = old ? old : &own;
	int r = RS_REAL(sigprocmask)(how, set, o);
	if (r == 0)
		changed(t, how, asked, o->__val[0]);
	return r;
}

/* libc has set the kernel's mask by itself. Until here nothing ran but its code and ours. */
static void unblock_trap(void)
{
	uint64_t now, trap = bit(SIGTRAP);
	if (RS_LIKELY(!rs_trapping) || !mask_now(&now) || !(now & trap))
		return;
	rs_trap_block(true);
	RS_SYS4(SYS_rt_sigprocmask, SIG_UNBLOCK, &trap, NULL, 8);
}

/* --- the older interfaces ----------------------------------------------------------------------------------------------------------------- */

RS_EXPORT int sighold(int sig)
{
	int r = RS_REAL(sighold)(sig);
	unblock_trap();
	if (r == 0 && rs_config.all)
		rs_sigmask_changed(rs_self(), RS_MASK_HOW_BLOCK, bit(sig));
	return r;
}

RS_EXPORT int sigrelse(int sig)
{
	int r = RS_REAL(sigrelse)(sig);
	if (rs_trapping && sig == SIGTRAP)
		rs_trap_block(false);
	if (r == 0 && rs_config.all)
		rs_sigmask_changed(rs_self(), RS_MASK_HOW_UNBLOCK, bit(sig));
	return r;
}

RS_EXPORT int sigblock(int mask)
{
	int r = RS_REAL(sigblock)(mask);
	if (RS_UNLIKELY(rs_trapping) && rs_trap_blocked())
		r |= (int)bit(SIGTRAP);
	unblock_trap();
	if (rs_config.all)
		rs_sigmask_changed(rs_self(), RS_MASK_HOW_BLOCK, (uint32_t)mask);
	return r;
}

RS_EXPORT int sigsetmask(int mask)
{
	int r = RS_REAL(sigsetmask)(mask);
	if (RS_UNLIKELY(rs_trapping)) {
		if (rs_trap_blocked())
			r |= (int)bit(SIGTRAP);
		rs_trap_block(false);
	}
	unblock_trap();
	if (rs_config.all)
		rs_sigmask_changed(rs_self(), RS_MASK_HOW_SET, (uint32_t)mask);
	return r;
}

/* --- waits with another mask --------------------------------------------------------------------------------------------------------------- */

static struct rs_mask_wait begin(uint64_t set)
{
	struct rs_mask_wait w = {0, false};
	struct rs_thread *t = rs_self();
	if (t && !rs_sandboxed && mask_now(&w.back)) {
		w.told = true;
		tell(t, RS_MASK_HOW_WAIT, set, possible(set));
	}
	return w;
}

struct rs_mask_wait rs_mask_wait_begin(const void *set)
{
	/* An address that cannot be read is for the real call to refuse. The kernel reads the set before it refuses this `how`. */
	if (!set || rs_sandboxed || RS_SYS4(SYS_rt_sigprocmask, -1, set, NULL, 8) != -EINVAL)
		return (struct rs_mask_wait){0, false};
	return begin(*(const uint64_t *)set);
}

void rs_mask_wait_end(const struct rs_mask_wait *w)
{
	struct rs_thread *t = w->told ? rs_self() : NULL;
	if (t)
		tell(t, RS_MASK_HOW_WAIT_END, w->back, w->back);
}

RS_EXPORT int sigsuspend(const sigset_t *set)
{
	sigset_t room = {{0}};
	set = rs_trap_filter(set, &room);
	if (RS_LIKELY(!rs_config.all))
		return RS_REAL(sigsuspend)(set);
	struct rs_mask_wait w = rs_mask_wait_begin(set);
	int r = RS_REAL(sigsuspend)(set);
	rs_mask_wait_end(&w);
	return r;
}
RS_ALIAS(__sigsuspend, sigsuspend);

/* is_sig: the mask now, without that signal; else a BSD mask. */
int __sigpause(int sig_or_mask, int is_sig);
RS_EXPORT int __sigpause(int sig_or_mask, int is_sig)
{
	uint64_t now;
	if (RS_LIKELY(!rs_config.all) || rs_sandboxed || !mask_now(&now) || (is_sig && !bit(sig_or_mask)))
		return RS_REAL(__sigpause)(sig_or_mask, is_sig);
	struct rs_mask_wait w = begin(is_sig ? now & ~bit(sig_or_mask) : (uint32_t)sig_or_mask);
	int r = RS_REAL(__sigpause)(sig_or_mask, is_sig);
	rs_mask_wait_end(&w);
	return r;
}

/* signal.h gives the name sigpause to either. */
static __attribute__((used)) int bsd_sigpause(int mask) { return __sigpause(mask, 0); }
static __attribute__((used)) int xpg_sigpause(int sig) { return __sigpause(sig, 1); }
RS_NAME(sigpause, bsd_sigpause);
RS_NAME(__xpg_sigpause, xpg_sigpause);
