/* guardfault.c: faults of a re-execution. See guardlog.h; docs/decisions.md, 42.
 *
 * A re-execution that goes another way may do what the recording never did: use a result that is an error's, a pointer that was not written yet. Natively the program does not crash there, so the fault is a difference, and the thread
 * stands until all go forward to where the recording ended. What crashed in the recording, too, by the same thread and instruction, is its handler's, which looks into it; where that was the program's own, the re-execution ends there.
 *
 * Ground rules: guard.h's; the handler runs on threads of the program. */
#include "guardfault.h"
#include "guardbreak.h"
#include "guardepoch.h"
#include "guardlog.h"
#include "guardpage.h"
#include "guardsignal.h"
#include "guardstep.h"
#include "guardtry.h"
#include "patch.h"
#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stddef.h>
#include <sys/uio.h>

#ifndef SA_RESTORER
#define SA_RESTORER 0x04000000
#endif

static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
enum { FAULTS = sizeof faults / sizeof *faults, RED_ZONE = 128 };
static struct taken { uint32_t pid; struct rs_guard_world *world; bool are; struct rs_kernel_action was[FAULTS]; } *taken; /* in the arena */

/* The thread crashed in the recording after another one had, and came no further than this. */
static bool is_second(const struct rs_guard_log *t, uint64_t pc) { return rs_guard_next_at(t) == t->end && t->pending_end == RS_GUARD_WHAT(pc, RS_GUARD_FAULTS); }

/* It is the recording's crash, which its handler looks into. Else the thread is to stand: there is a difference, or that is all that is executed again. */
static bool meets(struct rs_guard_log *t, int sig, const siginfo_t *info, uint64_t pc)
{
	struct rs_guard_world *w = rs_guard_world();
	if (is_second(t, pc))
		return false;
	bool it = (!w->to_fault || (uint64_t)info->si_addr == w->fault.address) && rs_guard_try_crash(t, sig, pc);
	if (it && w->to_fault)
		__atomic_store_n(&w->ending, 1, __ATOMIC_SEQ_CST);
	else if (!it && !(w->to_fault && (rs_guard_try_crashed() || (rs_guard_fault_behind(t) && t->at >= t->end))))
		rs_guard_diverged(t, RS_GUARD_FAULT, pc, (uint64_t)info->si_addr);
	return it && !w->to_fault;
}

static void handler(int sig, siginfo_t *info, void *context)
{
	struct rs_guard_log *t = rs_guard_self();
	ucontext_t *uc = context;
	struct rs_shown shown;
	unsigned i = 0;
	if (sig == SIGSEGV && rs_guard_page_fault(info, context))
		return;
	/* It was sent, and waits until the program opens it. */
	if (info->si_code <= 0 && rs_guard_mode() == RS_GUARD_REPLAY) {
		uc->uc_sigmask.__val[0] |= 1ull << (sig - 1);
		RS_SYS4(SYS_rt_tgsigqueueinfo, rs_os_pid(), rs_os_tid(), sig, info);
		return;
	}
	rs_guard_break_show(uc->uc_mcontext.gregs);
	if (rs_config.races)
		rs_patch_show(uc, info, &shown); /* it does not go on there */
	while (t && rs_guard_mode() == RS_GUARD_REPLAY && !meets(t, sig, info, (uint64_t)uc->uc_mcontext.gregs[REG_RIP])) {
		uint32_t gate = __atomic_load_n(&rs_guard_world()->gate, __ATOMIC_ACQUIRE);
		bool second = is_second(t, (uint64_t)uc->uc_mcontext.gregs[REG_RIP]);
		rs_guard_step_stands();
		rs_guard_stand(t, second ? (uintptr_t)uc->uc_mcontext.gregs[REG_RIP] : 0, second ? RS_GUARD_FAULTS : RS_GUARD_ASK, gate);
	}
	while (i < FAULTS - 1 && faults[i] != sig)
		i++;
	void (*was)(int, siginfo_t *, void *) = (void (*)(int, siginfo_t *, void *))taken->was[i].handler;
	if (taken->was[i].handler > 1)
		was(sig, info, context);
	else
		RS_SYS4(SYS_rt_sigaction, sig, &taken->was[i], NULL, 8); /* it comes again */
}

/* --- faults of which a handler of the program's is told ---------------------------------------------------------------------------------------- */

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STORE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELEASE)
enum { MOST_MS = 300000 /* a handler may take, that then lets the process die (redis tests all memory) */, RETURNED_MS = 100 /* from its return until it has */, CARRIED = 0x10100 /* TF, RF */ };

static void cut(struct rs_guard_log *t)
{
	if (t->cut)
		return;
	t->cut_bytes = t->bytes_at;
	if (t->at)
		t->cut_last = t->event[t->at - 1];
	STORE(t->cut, t->at + 1);
}

/* The coordinator may sleep for long. */
static void poke(void)
{
	uint32_t free = 0;
	if (__atomic_compare_exchange_n(rs_guard_request, &free, RS_GUARD_LOOK, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		RS_SYS3(SYS_futex, rs_guard_request, FUTEX_WAKE, 1 << 30);
}

static void goes_on(struct rs_guard_world *w)
{
	uint32_t none = 0;
	__atomic_compare_exchange_n(&w->lost, &none, RS_GUARD_LOST_SIGNAL, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* The fault is the calling thread's, and the epoch not lost. */
static struct rs_guard_log *whose_it_is(struct rs_guard_world *w)
{
	struct rs_guard_log *t = w && rs_guard_is_faulted(w) && LOAD(w->mode) == RS_GUARD_RECORD ? rs_guard_self() : NULL;
	return t && w->fault.who == t->index + 1 ? t : NULL;
}

bool rs_guard_fault_comes(struct rs_guard_log *t, int sig, const siginfo_t *info, const ucontext_t *uc)
{
	struct rs_guard_world *w = rs_guard_world();
	struct rs_guard_faulted *f = &w->fault;
	const greg_t *g = uc->uc_mcontext.gregs;
	unsigned i = 0;
	while (i < FAULTS && faults[i] != sig)
		i++;
	if (i == FAULTS || LOAD(w->mode) != RS_GUARD_RECORD || !w->session || rs_guard_is_lost(w) || t->outside || t->inner || t->state != RS_GUARD_RUNS)
		return false;
	if (LOAD(f->who) == t->index + 1) { /* what it did in between is not known */
		goes_on(w);
		poke();
		return true;
	}
	if (LOAD(f->who) || !rs_guard_try_crash(t, sig, (uint64_t)g[REG_RIP])) {
		cut(t);
		return LOAD(f->who) != 0;
	}
	f->asks = f->over = 0;
	f->context = 0;
	f->sig = sig;
	f->address = (uint64_t)info->si_addr;
	f->since_ns = rs_os_now_ns();
	f->frame = t->sp = (uint64_t)g[REG_RSP] - RED_ZONE;
	rs_os_copy(f->gregs, g, sizeof f->gregs);
	cut(t);
	STORE(f->who, t->index + 1);
	return true;
}

static bool is_there(const struct rs_guard_faulted *f, const greg_t *g)
{
	for (unsigned i = 0; i <= REG_RIP; i++)
		if (f->gregs[i] != (uint64_t)g[i])
			return false;
	return !((f->gregs[REG_EFL] ^ (uint64_t)g[REG_EFL]) & ~(uint64_t)CARRIED);
}

void rs_guard_fault_handled(int sig, const ucontext_t *uc, bool begins)
{
	struct rs_guard_world *w = rs_guard_world();
	struct rs_guard_log *t = whose_it_is(w);
	if (!t || w->fault.sig != sig)
		return;
	if (begins && !w->fault.context) {
		STORE(w->fault.context, (uint64_t)uc);
	} else if (!begins && !is_there(&w->fault, uc->uc_mcontext.gregs)) {
		goes_on(w);
		poke();
	} else if (!begins) {
		w->fault.over_ns = rs_os_now_ns();
		STORE(w->fault.over, t->at + 1);
		poke();
	}
}

void rs_guard_fault_asks(int sig, const siginfo_t *info, const greg_t *g)
{
	struct rs_guard_world *w = rs_guard_world();
	const struct rs_guard_log *t = whose_it_is(w);
	struct rs_guard_faulted *f = &w->fault;
	if (t && f->sig == sig && f->address == (uint64_t)info->si_addr && is_there(f, g) && (!f->over || f->over == t->at + 1))
		STORE(f->asks, 1);
	t = w && w->session && !LOAD(f->who) && LOAD(w->mode) == RS_GUARD_RECORD ? rs_guard_self() : NULL;
	if (t && !rs_guard_try_other_crash(t)) {
		f->address = (uint64_t)info->si_addr;
		STORE(f->dies, t->index + 1);
	}
}

bool rs_guard_fault_only(void)
{
	struct rs_guard_faulted *f = &rs_guard_world()->fault;
	if (!LOAD(f->dies) || LOAD(f->who))
		return false;
	STORE(f->asks, 1);
	STORE(f->who, f->dies);
	return true;
}

bool rs_guard_fault_cuts(uint32_t why)
{
	/* Threads without logs, memory and places that cannot be had, orders that are not written down. */
	const uint32_t whole = 1u << RS_GUARD_LOST_OBJECTS | 1u << RS_GUARD_LOST_THREADS | 1u << RS_GUARD_LOST_MEMORY | 1u << RS_GUARD_LOST_SHARED | 1u << RS_GUARD_LOST_FILE;
	struct rs_guard_log *t = rs_guard_mine;
	if (whole >> why & 1 || rs_guard_mode() != RS_GUARD_RECORD || !t || t->tid != rs_os_tid())
		return false;
	cut(t);
	return true;
}

void rs_guard_fault_drop(void)
{
	struct rs_guard_world *w = rs_guard_world();
	if (rs_guard_is_faulted(w) && LOAD(w->mode) == RS_GUARD_RECORD)
		goes_on(w);
}

void rs_guard_fault_again(struct rs_guard_log *t)
{
	struct rs_guard_world *w = rs_guard_world();
	uint32_t inner = t->inner;
	STORE(t->inner, RS_GUARD_INNER);
	RS_BARRIER();
	if (rs_guard_is_faulted(w) && LOAD(w->mode) == RS_GUARD_RECORD && t->cut) {
		STORE(t->at, t->cut - 1);
		t->bytes_at = t->cut_bytes;
	}
	STORE(t->inner, inner);
}

bool rs_guard_fault_behind(const struct rs_guard_log *t)
{
	const struct rs_guard_world *w = rs_guard_world();
	return w->to_fault && w->fault.who != t->index + 1;
}

/* Who has left its handler by a jump has its stack there again, and something else where the handler's frame was. */
static bool has_left(const struct rs_guard_faulted *f)
{
	const struct rs_guard_log *t = rs_guard_log(f->who - 1);
	uint64_t sp = t->sp, context = LOAD(f->context);
	gregset_t g;
	struct iovec local = {g, sizeof g}, remote = {(void *)(context + offsetof(ucontext_t, uc_mcontext.gregs)), sizeof g};
	if (sp > f->frame && sp - t->alt_lo >= t->alt_size)
		return true;
	return context && RS_SYS6(SYS_process_vm_readv, rs_os_tid(), &local, 1, &remote, 1, 0) >= 0 && !rs_os_equal(g, f->gregs, REG_RIP * sizeof *g);
}

void rs_guard_fault_look(void)
{
	struct rs_guard_world *w = rs_guard_world();
	const struct rs_guard_faulted *f = &w->fault;
	if (!rs_guard_is_faulted(w) || LOAD(w->mode) != RS_GUARD_RECORD || LOAD(f->asks) || __atomic_load_n(&w->crashing, __ATOMIC_SEQ_CST))
		return;
	uint64_t now = rs_os_now_ns();
	if (LOAD(f->over) ? now - f->over_ns > RETURNED_MS * 1000000ull : has_left(f) || now - f->since_ns > MOST_MS * 1000000ull)
		goes_on(w);
}

/* Not at once: most handlers are over soon. The longer it lasts, the longer. */
uint64_t rs_guard_fault_lasts(void)
{
	enum { SOON_MS = 1000, QUIET_MS = 5000 };
	const struct rs_guard_world *w = rs_guard_world();
	rs_guard_fault_look();
	if (!rs_guard_is_faulted(w) || LOAD(w->mode) != RS_GUARD_RECORD || LOAD(w->fault.over) || LOAD(w->fault.asks))
		return 0;
	uint64_t lasts = rs_os_now_ns() - w->fault.since_ns;
	return lasts < SOON_MS * 1000000ull ? 0 : lasts < QUIET_MS * 1000000ull ? lasts : QUIET_MS * 1000000ull;
}

void rs_guard_fault_end(struct rs_guard_log *t)
{
	struct rs_guard_world *w = rs_guard_world();
	w->to_fault = w->fault.who && w->fault.asks;
	if (!w->to_fault)
		return;
	if (t->cut) {
		t->end = t->cut - 1;
		t->bytes_end = t->cut_bytes;
		if (t->end)
			t->event[t->end - 1] = t->cut_last;
	}
	/* Behind it nobody is to stand before this event or that, and its thread before none. */
	t->pending_end = w->fault.who == t->index + 1 ? UINT64_MAX : 0;
}

/* --- signals of a re-execution -------------------------------------------------------------------------------------------------------------------- */

long rs_guard_faults_begin(void)
{
	taken = rs_guard_map(RS_ARENA_OWN, sizeof *taken);
	if (!taken)
		return -ENOMEM;
	taken->pid = rs_os_pid();
	taken->world = rs_guard_world();
	return 0;
}

RS_GUARD_ARRIVES bool rs_guard_crashes(int sig, const greg_t *g, bool *second)
{
	*second = false;
	bool noted = taken && RS_SYS0(SYS_getpid) == taken->pid && __atomic_load_n(&taken->world->mode, __ATOMIC_ACQUIRE) == RS_GUARD_RECORD;
	if (noted)
		__atomic_fetch_add(&taken->world->crashing, 1, __ATOMIC_SEQ_CST);
	struct rs_guard_log *t = taken ? rs_guard_self() : NULL;
	if (t)
		t->under = (uint64_t)g[REG_RSP] - RED_ZONE;
	if (taken && sig != SIGABRT && rs_guard_mode() == RS_GUARD_RECORD)
		*second = !rs_guard_try_crash(t, sig, (uint64_t)g[REG_RIP]) && rs_guard_try_other_crash(t) && !LOAD(taken->world->fault.who);
	return noted;
}

void rs_guard_crash_stands(uint64_t pc)
{
	struct rs_guard_log *t = taken && RS_SYS0(SYS_getpid) == taken->pid ? rs_guard_self() : NULL;
	struct rs_guard_world *w = rs_guard_world();
	while (t && w->session && !t->outside && !t->inner && t->tid == rs_os_tid() && rs_guard_mode() == RS_GUARD_RECORD) {
		uint32_t gate = LOAD(w->gate);
		if (!LOAD(w->ending))
			break;
		t->sp = (uintptr_t)__builtin_frame_address(0) + 16;
		rs_guard_stand(t, pc, RS_GUARD_FAULTS, gate);
	}
}

void rs_guard_crashed(void) { __atomic_fetch_sub(&taken->world->crashing, 1, __ATOMIC_SEQ_CST); }

void rs_guard_faults_take(void)
{
	struct rs_kernel_action trap, ours = {.handler = (uintptr_t)handler, .flags = SA_SIGINFO | SA_ONSTACK | SA_RESTORER};
	if (!taken || taken->are || RS_SYS4(SYS_rt_sigaction, SIGTRAP, NULL, &trap, 8) < 0)
		return;
	ours.restorer = trap.restorer;
	for (unsigned i = 0; i < FAULTS; i++)
		RS_SYS4(SYS_rt_sigaction, faults[i], &ours, &taken->was[i], 8);
	taken->are = true;
}

void rs_guard_faults_back(void)
{
	for (unsigned i = 0; taken && taken->are && i < FAULTS; i++)
		RS_SYS4(SYS_rt_sigaction, faults[i], &taken->was[i], NULL, 8);
	if (taken)
		taken->are = false;
}
