/* crash.c: signals that are about to end the process: SIGSEGV, SIGBUS, SIGFPE, SIGILL and SIGABRT, where the program has left them at their default.
 * guard tells of them. Where the agent looks for races (run --full) they are the end of the process alone, before which races are told that were kept back; that of abort is told by exit.c there.
 *
 * Ground rules that bite here: anything may be broken and any lock held, by this very thread. The default action is back before anything else is done, and the signal comes again with what came
 * with it, so that the process ends as it would have, at the same instruction, with the same core dump. No alternate stack of ours: where there is no room for a handler the kernel ends the process, and nothing is told.
 *
 * The program sees SIG_DFL wherever it looks (signal.c), except by system calls of its own. What it sets takes our handler away, and where it sets SIG_DFL ours is back: handlers that print something, and then have the process die as it would
 * have (servers', Rust's), set that, and return to the instruction or send themselves the signal. */
#include "crash.h"
#include "alloc.h"
#include "calls.h"
#include "core.h"
#include "crashtext.h"
#include "evidence.h"
#include "guardfault.h"
#include "guardfork.h"
#include "guardsignal.h"
#include "guardstep.h"
#include "patch.h"
#include "pointer.h"
#include "proc.h"
#include <errno.h>
#include <signal.h>
#include <sys/uio.h>
#include <ucontext.h>

static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT /* guard's alone */};
enum { FATAL = sizeof fatal / sizeof fatal[0] };
static bool began, guards;
bool (*rs_crash_cause)(struct rs_thread *t, int sig, const greg_t *g, bool ask);

static unsigned index_of(int sig)
{
	unsigned i = 0;
	while (i < FATAL && fatal[i] != sig)
		i++;
	return i;
}

static long action(int sig, const struct rs_kernel_action *set, struct rs_kernel_action *old) { return RS_SYS4(SYS_rt_sigaction, sig, set, old, 8); }

/* One thread tells; another that crashes meanwhile would end the process before it has. pc: of its fault; 0: it is none. second: another one is known to tell. */
static bool first(uint64_t pc, bool second)
{
	enum { PATIENCE_MS = 2000, STEP_MS = 10 };
	static uint32_t pid; /* who came first in this process */
	uint32_t own = rs_os_pid();
	if (!second && __atomic_exchange_n(&pid, own, __ATOMIC_RELAXED) != own)
		return true;
	static uint32_t never;
	for (unsigned ms = 0; ms < PATIENCE_MS; ms += STEP_MS) {
		if (pc)
			rs_guard_crash_stands(pc);
		rs_os_wait(&never, 0, false, STEP_MS);
	}
	return false;
}

/* Is the address made of what guard fills memory with? It was read there. Other registers may hold that for reasons of ours. */
static unsigned patterns(const greg_t *g)
{
	static const uint64_t words[] = {RS_FREED_WORD, RS_GUARD_WORD};
	enum { NEAR = 4096 };
	uint64_t value[2];
	unsigned found = 0;
	for (unsigned n = rs_sandboxed ? 0 : rs_pointer_addressed((const uint64_t *)g, value); n-- > 0;)
		for (unsigned i = 0; i < 2; i++)
			if (value[n] - words[i] + NEAR < 2 * NEAR)
				found |= RS_CRASH_FLAG_FREED << i;
	return found;
}

static bool read_memory(greg_t at, void *to, size_t n)
{
	struct iovec local = {to, n}, remote = {(void *)(uintptr_t)at, n};
	return !rs_sandboxed && RS_SYS6(SYS_process_vm_readv, rs_os_tid(), &local, 1, &remote, 1, 0) == (long)n;
}

/* How memory was accessed: what the processor says of its faults. */
static unsigned accessed(const greg_t *g)
{
	enum { PAGE_FAULT = 14, WRITES = 2, FETCHES = 16 };
	if (g[REG_TRAPNO] != PAGE_FAULT)
		return 0;
	return g[REG_ERR] & FETCHES ? RS_CRASH_FLAG_EXECUTE : g[REG_ERR] & WRITES ? RS_CRASH_FLAG_WRITE : RS_CRASH_FLAG_READ;
}

/* Is the address beside the stack pointer, as far as functions' frames go? */
static unsigned overflows(uint64_t address, const greg_t *g)
{
	enum { BELOW = 512, ABOVE = 64 << 10 };
	return address + BELOW - (uint64_t)g[REG_RSP] < BELOW + ABOVE ? RS_CRASH_FLAG_STACK : 0;
}

/* What was read from a freed block often was by way of a register that still points there. In those that calls need not keep our own free may have left it. */
static void tell_freed(struct rs_thread *t, const greg_t *g)
{
	static const uint8_t kept[] = {REG_RBX, REG_RBP, REG_R12, REG_R13, REG_R14, REG_R15};
	struct rs_evidence e;
	for (unsigned i = 0; i < sizeof kept; i++) {
		uintptr_t at = (uintptr_t)g[kept[i]];
		if (rs_evidence_block(t, at, &e) && e.freed && at < e.block + e.size)
			RS_EMIT(t, CRASH_SOURCE, crash_source, RS_BLOCK_STATE_FREED, RS_USED_REGISTER, 0, 0, e.alloc_thread, e.free_thread, at, 0, e.block, e.size, e.alloc_stack, e.free_stack);
	}
}

/* A ucontext_t up to its general registers, which is what others read of it. */
struct shown { char before[offsetof(ucontext_t, uc_mcontext.gregs)]; gregset_t g; };

/* The context as the program's own: who aborts is in a call, and in the hook of calls where these are seen. */
static const greg_t *shown(struct shown *like, const ucontext_t *uc)
{
	gregset_t was, seen;
	rs_os_copy(like, uc, sizeof *like);
	/* cppcheck-suppress uninitvar ; it writes them */
	rs_hook_view(like->g, was, seen);
	return like->g;
}

extern const char __ehdr_start[] RS_HIDDEN, _end[] RS_HIDDEN;

/* Where it crashed; where there is no code, who called it there; where the code is ours, in place of libc's, who called that. */
static uint32_t stack_of(struct rs_thread *t, const struct shown *uc)
{
	enum { DEPTH = 64 };
	const greg_t *g = uc->g;
	unsigned depth = rs_config.stack_depth < DEPTH ? rs_config.stack_depth : DEPTH;
	uint64_t pcs[DEPTH], caller;
	uint8_t code;
	if (depth >= 2 && (uintptr_t)g[REG_RIP] - (uintptr_t)__ehdr_start < (uintptr_t)_end - (uintptr_t)__ehdr_start) {
		struct rs_frame f = {.pc = (uintptr_t)g[REG_RIP], .rsp = (uintptr_t)g[REG_RSP], .rbp = (uintptr_t)g[REG_RBP], .rbx = (uintptr_t)g[REG_RBX], .has_rbp = true, .has_rbx = true};
		unsigned n = rs_walk(t, &f, true, pcs, depth, NULL);
		if (n > 1) {
			pcs[1]--; /* it is taken as where the thread is */
			return rs_stack_of(t, pcs + 1, n - 1);
		}
	}
	if (depth < 2 || read_memory(g[REG_RIP], &code, 1) || !read_memory(g[REG_RSP], &caller, sizeof caller) || !rs_guard_step_behind_call(caller))
		return rs_stack_ucontext(t, uc, rs_config.stack_depth);
	struct rs_frame f = {.pc = (uintptr_t)caller, .rsp = (uintptr_t)g[REG_RSP] + 8, .rbp = (uintptr_t)g[REG_RBP], .rbx = (uintptr_t)g[REG_RBX], .has_rbp = true, .has_rbx = true};
	pcs[0] = (uint64_t)g[REG_RIP];
	return rs_stack_of(t, pcs, 1 + rs_walk(t, &f, false, pcs + 1, depth - 1, NULL));
}

/* The fault that a handler of the program's has, or had last. sp: where its frame is; 0: it is over. */
RS_TLS struct { uintptr_t sp; siginfo_t info; struct shown uc; } handled;

void rs_crash_handled(int sig, const siginfo_t *info, const ucontext_t *uc, bool begins)
{
	if (!began || !guards || rs_in_vfork() || sig == SIGABRT || index_of(sig) == FATAL)
		return;
	rs_guard_fault_handled(sig, uc, begins);
	if (!begins) {
		handled.sp = 0;
	} else if (info->si_code > 0) {
		rs_os_copy(&handled.info, info, sizeof handled.info);
		rs_os_copy(&handled.uc, uc, sizeof handled.uc);
		handled.sp = (uintptr_t)uc;
	}
}

/* One that was left by a jump has something else where its frame was, if what is called now goes further down. */
static bool is_in_handler(void)
{
	struct shown now;
	return read_memory((greg_t)handled.sp, &now, sizeof now) && rs_os_equal(now.g, handled.uc.g, REG_RIP * sizeof *now.g);
}

/* Whether the signal is one that the thread sends itself, from within its handler for a fault of that kind, or an abort there: it comes there, or, where it was blocked, when the handler has returned, before the instruction that
 * had the fault is executed again. */
static bool is_handled(int sig, const siginfo_t *info, const greg_t *g)
{
	enum { NEAR = 1 << 20 }; /* on its stack */
	uintptr_t here = (uintptr_t)g[REG_RSP];
	if (info->si_code > 0 || info->si_pid != (pid_t)rs_os_pid() || (sig == SIGABRT ? !handled.sp : handled.info.si_signo != sig))
		return false;
	return handled.sp ? handled.sp > here && handled.sp - here < NEAR && is_in_handler() : g[REG_RIP] == handled.uc.g[REG_RIP] && g[REG_RSP] == handled.uc.g[REG_RSP];
}

static uint32_t sender; /* tid, while it tells */

unsigned rs_crash_sent(void)
{
	uint32_t tid = (uint32_t)rs_os_tid();
	return __atomic_compare_exchange_n(&sender, &tid, 0, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED) ? SYS_tgkill : 0;
}

/* Was the signal sent by the call that the thread is in, and to itself? The kernel keeps the registers that arguments are in. */
static bool sends(int sig, const siginfo_t *info, const greg_t *own)
{
	return info->si_code == SI_TKILL && own[REG_RDI] == (greg_t)rs_os_pid() && own[REG_RSI] == (greg_t)rs_os_tid() && own[REG_RDX] == sig;
}

static void tell(int sig, const siginfo_t *info, const ucontext_t *uc, bool second)
{
	struct rs_thread *t = rs_self();
	bool aborts = sig == SIGABRT;
	if (is_handled(sig, info, uc->uc_mcontext.gregs)) {
		info = &handled.info;
		uc = (const ucontext_t *)&handled.uc;
		sig = info->si_signo;
	}
	bool fault = info->si_code > 0, addressed = fault && sig != SIGABRT && info->si_code != SI_KERNEL;
	if (!t || (!fault && (sig != SIGABRT || info->si_pid != (pid_t)rs_os_pid())) || !first(fault ? (uint64_t)uc->uc_mcontext.gregs[REG_RIP] : 0, second))
		return;
	if (!guards) {
		rs_emit_end(t, RS_END_ABORT, 0);
		return;
	}
	const greg_t *g = uc->uc_mcontext.gregs;
	struct shown like;
	const greg_t *own = shown(&like, uc);
	if (fault)
		rs_guard_fault_asks(sig, info, g);
	else if (sends(sig, info, own))
		sender = (uint32_t)rs_os_tid();
	rs_evidence_check(t, RS_NOTICED_SIGNAL);
	sender = 0;
	if (rs_guard_young && !rs_sandboxed)
		RS_EMIT(t, CRASH_AGAIN, crash_again, rs_patch_put_off || rs_process.start != RS_START_FORK ? RS_AGAIN_ALONE : RS_AGAIN_YOUNG, 0, 0, 0, 0);
	bool known = rs_crash_cause && (fault || sig == SIGABRT) && rs_crash_cause(t, sig, sig != SIGABRT ? g : info->si_code == SI_TKILL ? own : NULL, !rs_evidence_count());
	if (sig == SIGABRT)
		rs_crashtext_tell(t, &like);
	unsigned flags = (addressed ? RS_CRASH_FLAG_ADDRESSED | overflows((uint64_t)info->si_addr, g) | accessed(g) | ((uintptr_t)info->si_addr - rs_alloc.base < rs_alloc.reserved ? RS_CRASH_FLAG_RESERVED : 0) : 0) | (fault ? patterns(g) : 0);
	if (!known && flags & RS_CRASH_FLAG_FREED)
		tell_freed(t, g);
	uint32_t stack = stack_of(t, &like);
	RS_EMIT_URGENT(t, CRASH, crash, (uint32_t)sig, (uint32_t)info->si_code, (uint16_t)flags, addressed ? (uintptr_t)info->si_addr : 0, (uintptr_t)own[REG_RIP], stack);
	if (aborts)
		rs_emit_end(t, RS_END_ABORT, 0);
}

static __attribute__((noinline)) void die(int sig, siginfo_t *info, const ucontext_t *uc, bool second)
{
	int error = errno;
	struct rs_kernel_action none = {0, 0, 0, 0};
	tell(sig, info, uc, second);
	action(sig, &none, NULL);
	RS_SYS4(SYS_rt_tgsigqueueinfo, RS_SYS0(SYS_getpid), rs_os_tid(), sig, info); /* comes when we have returned */
	errno = error;
}

RS_GUARD_ARRIVES static void handler(int sig, siginfo_t *info, void *context)
{
	bool second, noted = rs_guard_crashes(sig, ((const ucontext_t *)context)->uc_mcontext.gregs, &second);
	die(sig, info, context, second);
	if (noted)
		rs_guard_crashed();
}

bool rs_crash_handles(const void *h) { return began && h == (const void *)(uintptr_t)handler; }

/* What the program gave with SIG_DFL, which sigaction gives back. */
static struct { sigset_t mask; int flags; } given[FATAL];

bool rs_crash_takes(int sig) { return began && index_of(sig) < (guards ? FATAL : FATAL - 1) && !rs_sandboxed && !rs_in_vfork(); }

bool rs_crash_default(int sig, const struct sigaction *act, struct sigaction *ours)
{
	unsigned i = index_of(sig);
	if (act->sa_handler != SIG_DFL || !rs_crash_takes(sig))
		return false;
	given[i].mask = act->sa_mask;
	given[i].flags = act->sa_flags;
	*ours = (struct sigaction){.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	return true;
}

void rs_crash_show(int sig, struct sigaction *old)
{
	unsigned i = index_of(sig);
	old->sa_handler = SIG_DFL;
	old->sa_flags = i < FATAL ? given[i].flags : 0;
	sigemptyset(&old->sa_mask);
	if (i < FATAL)
		old->sa_mask = given[i].mask;
}

void rs_crash_begin(bool guard)
{
	struct rs_kernel_action now;
	guards = guard;
	if (guards)
		rs_crashtext_begin();
	for (unsigned i = 0, n = guards ? FATAL : FATAL - 1; i < n; i++) {
		struct sigaction ours = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
		if (action(fatal[i], NULL, &now) == 0 && now.handler == (uintptr_t)SIG_DFL)
			rs_real.sigaction(fatal[i], &ours, NULL);
	}
	began = true;
}

void rs_crash_end(void)
{
	struct rs_kernel_action now, none = {0, 0, 0, 0};
	for (unsigned i = 0; began && i < FATAL; i++)
		if (action(fatal[i], NULL, &now) == 0 && rs_crash_handles((const void *)now.handler))
			action(fatal[i], &none, NULL);
}
