/* trap.c: SIGTRAP. An int3 of ours sends the thread to its trampoline; every other SIGTRAP does what it would do to the program without us.
 *
 * From the first int3 on the kernel's action is ours, and the signal is never blocked: a trap that is blocked kills. The program's own action and whether it has SIGTRAP
 * blocked are kept here and shown to it wherever it looks. A thread may come here from an int3 that is gone by now; so entries are never deleted, only emptied, and
 * then the byte in the text says whose the trap is. */
#include "patch.h"
#include "calls.h"
#include "cover.h"
#include "guardpage.h"
#include "guardsignal.h"
#include "guardstack.h"
#include "guardstep.h"
#include "guardwatch.h"
#include "share.h"
#include <errno.h>
#include <sys/mman.h>

#ifndef SA_RESTORER
#define SA_RESTORER 0x04000000u
#endif

#ifndef TRAP_HWBKPT
#define TRAP_HWBKPT 4
#endif
#ifndef TRAP_PERF
#define TRAP_PERF 6
#endif
enum { INT3 = 0xcc, INT1 = 0xf1, TF = 0x100, FIRST = 256, TRAP_BIT = 1 << (SIGTRAP - 1) };

bool rs_trapping;
RS_TLS bool blocked, pending;
RS_TLS uint64_t born; /* the kernel's mask when the thread began, with the signal blocked; 0: its mask was changed since where we see it */
RS_TLS uintptr_t inside; /* where on the stack the program's handler runs, which has the signal blocked; one that was left by longjmp lies below whatever runs then */
RS_TLS siginfo_t pending_info;

/* --- the table ---------------------------------------------------------------------------------------------------------------- */

struct entry { uintptr_t at, to; };
struct table { size_t mask, count; struct entry entry[]; };
static struct table *traps;

static struct entry *slot(struct table *t, uintptr_t at)
{
	size_t i = (size_t)((at * 0x9e3779b97f4a7c15ull) >> 20) & t->mask;
	while (t->entry[i].at != at && t->entry[i].at)
		i = (i + 1) & t->mask;
	return &t->entry[i];
}

/* A handler may be reading the old table: it stays. All old ones together are smaller than the new one. */
static bool grow(void)
{
	size_t n = traps ? 2 * (traps->mask + 1) : FIRST;
	struct table *t = rs_os_map(sizeof *t + n * sizeof t->entry[0]);
	if (!t)
		return false;
	t->mask = n - 1;
	for (size_t i = 0; traps && i <= traps->mask; i++)
		if (traps->entry[i].at) {
			*slot(t, traps->entry[i].at) = traps->entry[i];
			t->count++;
		}
	__atomic_store_n(&traps, t, __ATOMIC_RELEASE);
	return true;
}

long rs_trap_set(uintptr_t at, uintptr_t to)
{
	if ((!traps || traps->count > traps->mask / 2) && !grow())
		return -ENOMEM;
	struct entry *e = slot(traps, at);
	if (!to && !e->at)
		return 0;
	__atomic_store_n(&e->to, to, __ATOMIC_RELEASE);
	if (!e->at) {
		traps->count++;
		__atomic_store_n(&e->at, at, __ATOMIC_RELEASE);
	}
	return 0;
}

/* Where to go on; 0: the trap is not ours. */
static uintptr_t destination(uintptr_t at)
{
	struct table *t = __atomic_load_n(&traps, __ATOMIC_ACQUIRE);
	struct entry *e = t ? slot(t, at) : NULL;
	if (!e || e->at != at)
		return 0;
	uintptr_t to = __atomic_load_n(&e->to, __ATOMIC_ACQUIRE);
	if (!to && *(volatile uint8_t *)at != INT3)
		return at; /* it was, when the thread met it */
	return to;
}

bool rs_trap_leads(uintptr_t at) { return destination(at) != 0; }

/* --- the handler ------------------------------------------------------------------------------------------------------------------ */

static struct sigaction own; /* the program's */
static struct rs_lock lock;

static void kernel_default(void)
{
	struct { void *handler; uint64_t flags; void *restorer; uint64_t mask; } dfl = {0};
	RS_SYS4(SYS_rt_sigaction, SIGTRAP, &dfl, NULL, 8);
}

/* Comes again, to what is the action then, when the handler has returned or the mask allows. */
RS_GENERAL static void again(siginfo_t *info) { RS_SYS4(SYS_rt_tgsigqueueinfo, rs_os_pid(), rs_os_tid(), SIGTRAP, info); }

static void not_here(void)
{
	uint64_t set = TRAP_BIT;
	RS_SYS4(SYS_rt_sigprocmask, SIG_BLOCK, &set, NULL, 8);
}

/* What it began with was taken from its mask past us, as Go's runtime does by an instruction of its own: the signal is blocked no more, as what that call blocks the kernel has. */
void rs_trap_interrupts(const ucontext_t *uc)
{
	if (blocked && born & ~uc->uc_sigmask.__val[0])
		blocked = false;
}

static void deliver(siginfo_t *info, ucontext_t *uc)
{
	greg_t *g = uc->uc_mcontext.gregs;
	bool instruction = info->si_code == SI_KERNEL, sent = info->si_code <= 0;
	rs_trap_interrupts(uc);
	bool refused = blocked || (inside && (uintptr_t)g[REG_RSP] < inside);
	struct sigaction sa = own;
	if (refused && sent) {
		pending_info = *info;
		pending = true;
		return;
	}
	if (sa.sa_handler == SIG_IGN && sent)
		return;
	if (refused || sa.sa_handler == SIG_DFL || sa.sa_handler == SIG_IGN) {
		kernel_default();
		if (instruction && ((uint8_t *)g[REG_RIP])[-1] == INT3) {
			g[REG_RIP]--;
		} else {
			not_here();
			again(info);
		}
		return;
	}
	if (sa.sa_flags & (int)SA_RESETHAND)
		own.sa_handler = SIG_DFL;
	uintptr_t outer = inside;
	inside = sa.sa_flags & SA_NODEFER && sigismember(&sa.sa_mask, SIGTRAP) != 1 ? 0 : (uintptr_t)__builtin_frame_address(0);
	struct rs_shown shown;
	rs_patch_show(uc, info, &shown);
	/* From here on what the program asked for is blocked. */
	uint64_t mask = (uc->uc_sigmask.__val[0] | sa.sa_mask.__val[0]) & ~(uint64_t)TRAP_BIT;
	RS_SYS4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, 8);
	sa.sa_sigaction(SIGTRAP, info, uc);
	rs_patch_resume(uc, &shown);
	rs_trap_block(uc->uc_sigmask.__val[0] & TRAP_BIT);
	inside = outer;
	uc->uc_sigmask.__val[0] &= ~(unsigned long)TRAP_BIT;
}

/* Met by this thread, and gone by now: it goes back to what is there. `int $3` of two bytes is somebody's own; who has a handler may have int3 of his own, which come and go. */
static bool is_gone(const siginfo_t *info, const greg_t *g)
{
	const volatile uint8_t *behind = (const volatile uint8_t *)g[REG_RIP];
	return info->si_code == SI_KERNEL && own.sa_handler == SIG_DFL && behind[-1] != INT3 && (uintptr_t)behind % RS_PAGE > 1 && behind[-2] != 0xcd;
}

/* A signal of a step or a breakpoint of ours that comes when none is set any more. The program has asked for none without a handler, and would end. */
static bool is_left(const siginfo_t *info, ucontext_t *uc)
{
	static const char *const names[] = {[TRAP_BRKPT] = "passed over a SIGTRAP (TRAP_BRKPT) of nothing that is set", [TRAP_TRACE] = "passed over a SIGTRAP (TRAP_TRACE) of nothing that is set", [TRAP_HWBKPT] = "passed over a SIGTRAP (TRAP_HWBKPT) of nothing that is set",
					    [TRAP_PERF] = "passed over a SIGTRAP (TRAP_PERF) of nothing that is set"};
	static bool said;
	unsigned code = (unsigned)info->si_code;
	greg_t *flags = &uc->uc_mcontext.gregs[REG_EFL];
	bool icebp = code == TRAP_BRKPT && ((const volatile uint8_t *)uc->uc_mcontext.gregs[REG_RIP])[-1] == INT1; /* which is the program's; the kernel takes a trap without a cause for one, too (exc_debug_user) */
	if (!rs_guard_watch_ever() || own.sa_handler != SIG_DFL || code >= sizeof names / sizeof *names || !names[code] || icebp || (code == TRAP_TRACE && *flags & TF && !rs_guard_step_is_of(rs_os_tid())))
		return false;
	if (code == TRAP_TRACE)
		*flags &= ~(greg_t)TF;
	if (!__atomic_exchange_n(&said, true, __ATOMIC_RELAXED))
		rs_os_say(names[code], 0);
	return true;
}

static void delivered(int sig, siginfo_t *info, void *context, uint32_t unused)
{
	(void)sig, (void)unused;
	rs_guard_stack_began(context);
	deliver(info, context);
	rs_guard_stack_over(context);
}

static void handler(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	greg_t *g = uc->uc_mcontext.gregs;
	uintptr_t to = info->si_code == SI_KERNEL ? destination((uintptr_t)g[REG_RIP] - 1) : 0;
	if (!to && info->si_code == SI_KERNEL)
		to = rs_cover_met((uintptr_t)g[REG_RIP] - 1);
	if (to)
		g[REG_RIP] = (greg_t)to;
	else if (info->si_code == SI_KERNEL && rs_guard_step_int3(uc))
		return;
	else if (info->si_code == TRAP_PERF && rs_guard_watch_hit(info, uc))
		return;
	else if (info->si_code == TRAP_TRACE && rs_guard_page_stepped(uc))
		return;
	else if ((info->si_code == TRAP_PERF || info->si_code == TRAP_TRACE) && rs_guard_step_trap(info, uc))
		return;
	else if (rs_guard_watch_debug(info, uc))
		return;
	else if (rs_share_on && rs_share_stepped(info, uc))
		return;
	else if (is_gone(info, g))
		g[REG_RIP]--;
	else if (!is_left(info, uc) && (info->si_code != TRAP_TRACE || !rs_patch_midway((uintptr_t)g[REG_RIP])) && !rs_guard_signal_move(sig, uc, 0, own.sa_flags & SA_ONSTACK, delivered))
		delivered(sig, info, uc, 0);
}

static struct rs_kernel_action libcs; /* as libc installs a handler: with its own place to return to */

/* The kernel's action: ours, with what the program asked for as far as it shows: where the handler runs, what is restarted. All else is blocked in ours, which
 * is short: another handler would see code of the agent interrupted, and glibc's for cancellation would unwind from there to a context that leads into a trampoline. */
RS_GENERAL static struct rs_kernel_action action_for(const struct sigaction *as)
{
	struct rs_kernel_action k;
	k.handler = (uintptr_t)handler;
	k.restorer = libcs.restorer;
	k.flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK | SA_RESTART;
	k.mask = ~(uint64_t)TRAP_BIT;
	if (as->sa_handler != SIG_DFL && as->sa_handler != SIG_IGN)
		k.flags = (uint32_t)((as->sa_flags & ~(int)SA_RESETHAND) | SA_SIGINFO | SA_NODEFER);
	k.flags |= SA_RESTORER;
	return k;
}

/* For the program, whose call it counts as. Where calls are not counted the hook looks at actions (rs_call_before), and would come back here. */
RS_GENERAL static long program_action(const struct rs_kernel_action *k)
{
	return rs_calls_on ? RS_PROGRAM4(SYS_rt_sigaction, SIGTRAP, k, NULL, 8) : RS_SYS4(SYS_rt_sigaction, SIGTRAP, k, NULL, 8);
}

RS_GENERAL static long install(const struct sigaction *as)
{
	struct rs_kernel_action k = action_for(as);
	return program_action(&k);
}

long rs_trap_begin(void)
{
	if (rs_trapping)
		return 0;
	struct sigaction ours = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK | SA_RESTART};
	if (rs_real.sigaction(SIGTRAP, &ours, &own) < 0 || RS_SYS4(SYS_rt_sigaction, SIGTRAP, NULL, &libcs, 8) < 0)
		return -EINVAL;
	struct rs_kernel_action k = action_for(&own);
	if (RS_SYS4(SYS_rt_sigaction, SIGTRAP, &k, NULL, 8) < 0)
		return -EINVAL;
	rs_trapping = true;
	return 0;
}

/* --- what the program sees -------------------------------------------------------------------------------------------------------- */

int rs_trap_action(const struct sigaction *act, struct sigaction *old)
{
	uint64_t mask = rs_os_no_signals();
	if (!act)
		program_action(NULL); /* to be counted */
	rs_lock(&lock);
	struct sigaction before = own;
	int r = 0;
	if (act && (r = install(act) < 0 ? -1 : 0) == 0)
		own = *act;
	if (r == 0 && old)
		*old = before;
	rs_unlock(&lock);
	rs_os_signals(mask & ~(uint64_t)TRAP_BIT);
	return r;
}

RS_GENERAL long rs_trap_raw(const struct rs_kernel_action *act, struct rs_kernel_action *old)
{
	uint64_t all = ~(uint64_t)TRAP_BIT & ~rs_os_open, mask = 0;
	RS_SYS4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask, 8);
	rs_lock(&lock);
	old->handler = (uintptr_t)own.sa_handler;
	old->flags = (uint32_t)own.sa_flags | SA_RESTORER;
	old->restorer = libcs.restorer;
	old->mask = own.sa_mask.__val[0];
	long r = 0;
	if (act) {
		own.sa_handler = (rs_sighandler)act->handler;
		own.sa_flags = (int)(act->flags & ~(uint64_t)SA_RESTORER);
		own.sa_mask.__val[0] = act->mask;
		r = install(&own);
	}
	rs_unlock(&lock);
	RS_SYS4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, 8);
	return r;
}

const sigset_t *rs_trap_filter(const sigset_t *set, sigset_t *room)
{
	/* What cannot be read is for the kernel to refuse; it reads a set before it refuses this `how`. */
	if (RS_LIKELY(!rs_trapping) || !set || RS_SYS4(SYS_rt_sigprocmask, -1, set, NULL, 8) != -EINVAL || !(set->__val[0] & TRAP_BIT))
		return set;
	*room = *set;
	room->__val[0] &= ~(unsigned long)TRAP_BIT;
	return room;
}

RS_GENERAL bool rs_trap_blocked(void) { return blocked || (uintptr_t)__builtin_frame_address(0) < inside; }

uintptr_t rs_trap_enter(void *frame)
{
	uintptr_t before = inside;
	inside = (uintptr_t)frame;
	return before;
}

RS_GENERAL static void take_pending(void)
{
	if (pending) {
		pending = false;
		again(&pending_info);
	}
}

void rs_trap_leave(uintptr_t before)
{
	inside = before;
	if (!rs_trap_blocked())
		take_pending();
}

uint64_t rs_trap_masks;
RS_TLS struct { struct sigaction own; uint64_t masks; uintptr_t inside; siginfo_t info; bool blocked, pending; } parent;

void rs_trap_vfork(void)
{
	if (RS_LIKELY(!rs_trapping))
		return;
	parent.own = own;
	parent.masks = __atomic_load_n(&rs_trap_masks, __ATOMIC_RELAXED);
	parent.inside = inside;
	parent.blocked = blocked;
	parent.pending = pending;
	parent.info = pending_info;
	pending = false;
}

void rs_trap_vforked(void)
{
	if (RS_LIKELY(!rs_trapping))
		return;
	own = parent.own;
	__atomic_store_n(&rs_trap_masks, parent.masks, __ATOMIC_RELAXED);
	inside = parent.inside;
	blocked = parent.blocked;
	pending = parent.pending;
	pending_info = parent.info;
}

/* The action is all threads', who may meet int3 any time; a vfork child has actions of its own. */
static bool ignores(void) { return own.sa_handler == SIG_IGN && (rs_live_threads == 1 || rs_in_vfork()); }

enum { HANDED_MASK = 1, HANDED_ACTION = 2 };

unsigned rs_trap_hand_on(bool exec)
{
	uint64_t trap = TRAP_BIT;
	unsigned what = 0;
	if (RS_LIKELY(!rs_trapping) || rs_sandboxed)
		return 0;
	if (rs_trap_blocked() && RS_SYS4(SYS_rt_sigprocmask, SIG_BLOCK, &trap, NULL, 8) == 0)
		what |= HANDED_MASK;
	struct rs_kernel_action k = {.handler = (uintptr_t)SIG_IGN};
	if (exec && ignores() && RS_SYS4(SYS_rt_sigaction, SIGTRAP, &k, NULL, 8) == 0)
		what |= HANDED_ACTION;
	return what;
}

void rs_trap_take_back(unsigned what)
{
	uint64_t trap = TRAP_BIT;
	if (what & HANDED_ACTION)
		RS_SYS4(SYS_rt_sigaction, SIGTRAP, &libcs, NULL, 8);
	if (what & HANDED_MASK)
		RS_SYS4(SYS_rt_sigprocmask, SIG_UNBLOCK, &trap, NULL, 8);
}

void rs_trap_thread(bool creator)
{
	uint64_t now, trap = TRAP_BIT;
	if (RS_LIKELY(!rs_trapping) || RS_SYS4(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &now, 8) < 0)
		return;
	blocked = creator || now & trap;
	born = blocked ? now & ~trap : 0;
	if (now & trap)
		RS_SYS4(SYS_rt_sigprocmask, SIG_UNBLOCK, &trap, NULL, 8);
}

RS_GENERAL void rs_trap_block(bool b)
{
	blocked = b;
	born = 0;
	if (!b)
		inside = 0;
	if (!b)
		take_pending();
}
