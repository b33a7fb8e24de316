/* guardfault.c: faults of a re-execution. See guardlog.h; docs/decisions.md, 42.
 *
 * A re-execution that goes another way may do what the recording never did: use a result that is an error's, a pointer that was not written yet. Natively the program does not crash there, so the fault is a difference, and the thread
 * stands until all go forward to where the recording ended. What crashed in the recording, too, by the same thread and instruction, is its handler's, which looks into it.
 *
 * Ground rules: guard.h's; the handler runs on threads of the program. */
#include "guardfault.h"
#include "guardbreak.h"
#include "guardlog.h"
#include "guardpage.h"
#include "guardsignal.h"
#include "guardtry.h"
#include "patch.h"
#include <errno.h>
#include <signal.h>

#ifndef SA_RESTORER
#define SA_RESTORER 0x04000000
#endif

static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
enum { FAULTS = sizeof faults / sizeof *faults, RED_ZONE = 128 };
static struct taken { uint32_t pid; struct rs_guard_world *world; bool are; struct rs_kernel_action was[FAULTS]; } *taken; /* in the arena */

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
	while (t && rs_guard_mode() == RS_GUARD_REPLAY && !rs_guard_try_crash(t, sig, (uint64_t)uc->uc_mcontext.gregs[REG_RIP])) {
		uint32_t gate = __atomic_load_n(&rs_guard_world()->gate, __ATOMIC_ACQUIRE);
		rs_guard_diverged(t, RS_GUARD_FAULT, (uint64_t)uc->uc_mcontext.gregs[REG_RIP], (uint64_t)info->si_addr);
		rs_guard_stand(t, 0, RS_GUARD_ASK, gate);
	}
	while (i < FAULTS - 1 && faults[i] != sig)
		i++;
	void (*was)(int, siginfo_t *, void *) = (void (*)(int, siginfo_t *, void *))taken->was[i].handler;
	if (taken->was[i].handler > 1)
		was(sig, info, context);
	else
		RS_SYS4(SYS_rt_sigaction, sig, &taken->was[i], NULL, 8); /* it comes again */
}

long rs_guard_faults_begin(void)
{
	taken = rs_guard_map(sizeof *taken);
	if (!taken)
		return -ENOMEM;
	taken->pid = rs_os_pid();
	taken->world = rs_guard_world();
	return 0;
}

RS_GUARD_ARRIVES bool rs_guard_crashes(int sig, const greg_t *g)
{
	bool noted = taken && RS_SYS0(SYS_getpid) == taken->pid && __atomic_load_n(&taken->world->mode, __ATOMIC_ACQUIRE) == RS_GUARD_RECORD;
	if (noted)
		__atomic_fetch_add(&taken->world->crashing, 1, __ATOMIC_SEQ_CST);
	struct rs_guard_log *t = taken ? rs_guard_self() : NULL;
	if (t)
		t->under = (uint64_t)g[REG_RSP] - RED_ZONE;
	if (taken && sig != SIGABRT && rs_guard_mode() == RS_GUARD_RECORD)
		rs_guard_try_crash(t, sig, (uint64_t)g[REG_RIP]);
	return noted;
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
