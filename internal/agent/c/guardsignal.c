/* guardsignal.c: the program's signal handlers in an epoch of `guard`. See guardsignal.h; docs/decisions.md, 50.
 *
 * In a nutshell. The kernel delivers a signal wherever the thread is. While an epoch records, the stub of the handler (signal.c) keeps what it was given, blocks the signal and returns: the thread goes on to its next event, and there the
 * handler runs, by a frame that is made here as the kernel makes one. So what ran before it and what behind is known by counts of events, and a re-execution runs it at the same place, with the same siginfo, frame and stack.
 * A call that the signal interrupted has done nothing: the handler runs, and the call is made again or returns EINTR, as the kernel had it. Signals that a thread sends itself come in the call, and are handled before it returns.
 * A thread that comes to no event for a millisecond gets its signal from the kernel again, and the epoch is lost, as it is where a handler cannot be made to wait: faults (but guardfault.h), SA_RESETHAND, masks of a wait, timers of profilers.
 *
 * Ground rules: guardlog.h's. A waiting signal is the thread's own, in the arena; it is touched with all signals blocked, ours too, so that no checkpoint finds it half done. */
#include "guardfault.h"
#include "guardrace.h"
#include "guardsignal.h"
#include "guardstack.h"
#include "guardsync.h"
#include "guardsys.h"
#include "guardepoch.h"
#include "world.h"
#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stddef.h>

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STORE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELEASE)
#define BIT(sig) (1ull << ((sig) - 1))
#define AUTODISARM (1u << 31)

enum { MOST = 8, LATE_NS = 1000000, DEPTH = 4096 /* of our own frames below the program's stack pointer */, USED = 12 << 10 /* and of what the kernel and we leave there */, ROOM = 16 << 10, BELOW = 2 << 10, RED_ZONE = 128 };
enum { FP_MAGIC = 0x46505853, FP_MAGIC_END = 0x46505845, FP_XMM = 160, FP_SOFTWARE = 464, FP_HEADER = 512, FP_HEADER_BYTES = 64 };
#define UC_BYTES (offsetof(ucontext_t, uc_sigmask) + 8) /* the kernel's struct ucontext */

struct software { uint32_t magic, extended; uint64_t features; uint32_t bytes, padding[7]; };
_Static_assert(sizeof(struct software) == 48, "");
struct action { uintptr_t handler; uint64_t flags; uintptr_t restorer; uint64_t mask; };

/* What the kernel's frame said. */
struct taken {
	siginfo_t info;
	uint64_t entry, flags, selectors;
	struct action action;
	struct software fp;
};
/* In the log. */
struct noted {
	struct taken of;
	uint64_t before, sp, mask, top;
	stack_t stack;
	uint32_t ticket, pad;
};
/* As the kernel's struct rt_sigframe; struct siginfo is behind the kernel's ucontext. */
struct frame { uint64_t restorer; char uc[UC_BYTES]; siginfo_t info; };

static struct waiting {
	uint64_t since, at_once;
	uint64_t ran;              /* ns of the thread's own time, as of then */
	uint64_t early;            /* one of them came before the thread was in the call that it is in now */
	uint64_t entered;          /* the frame's ucontext that was made for a handler which is about to run */
	struct taken signal[MOST];
} *waiting;
static uint32_t *asked;            /* the coordinator looks after who waits */
static struct rs_guard_world *world; /* with waiting */
extern const char __ehdr_start[] RS_HIDDEN, _end[] RS_HIDDEN;

static struct waiting *of(const struct rs_guard_log *t) { return &waiting[t->index]; }

static uint64_t ran_ns(void)
{
	struct timespec ts = {0};
	RS_SYS2(SYS_clock_gettime, CLOCK_THREAD_CPUTIME_ID, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

/* But for what is forced on the thread. */
static uint64_t set_mask(uint64_t mask)
{
	uint64_t was = 0;
	mask &= ~rs_os_open;
	RS_SYS4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, &was, 8);
	return was;
}

static uint64_t mask_now(void)
{
	uint64_t mask = 0;
	RS_SYS4(SYS_rt_sigprocmask, SIG_BLOCK, NULL, &mask, 8);
	return mask;
}

static long send_again(const struct rs_guard_log *t, const siginfo_t *info)
{
	return RS_SYS4(SYS_rt_tgsigqueueinfo, rs_os_pid(), t->tid, info->si_signo, info);
}

static void drop_first(struct rs_guard_log *t, uint32_t i)
{
	struct waiting *w = of(t);
	for (uint32_t n = t->signals; i + 1 < n; i++)
		rs_os_copy(&w->signal[i], &w->signal[i + 1], sizeof w->signal[i]);
	STORE(t->signals, t->signals - 1);
}

static uint64_t bits(const struct rs_guard_log *t)
{
	uint64_t b = 0;
	for (uint32_t i = 0; i < t->signals; i++)
		b |= BIT(of(t)->signal[i].info.si_signo);
	return b;
}

/* --- a handler runs ------------------------------------------------------------------------------------------------------------- */

/* As if the kernel had delivered a signal behind this call: it returns by rt_sigreturn, to rs_guard_handler_ran. */
void rs_guard_run_handler(struct frame *f, uint64_t entry, void *fp, uint64_t features) RS_HIDDEN;
__asm__(".text\n.p2align 4\n.globl rs_guard_run_handler\n.hidden rs_guard_run_handler\n.type rs_guard_run_handler, @function\n"
	"rs_guard_run_handler:\n"
	".cfi_startproc\n"
	/* gregs are at 8 + 40. */
	"	movq %r12, 80(%rdi)\n	movq %r13, 88(%rdi)\n	movq %r14, 96(%rdi)\n	movq %r15, 104(%rdi)\n	movq %rbp, 128(%rdi)\n	movq %rbx, 136(%rdi)\n"
	"	leaq rs_guard_handler_ran(%rip), %rax\n	movq %rax, 176(%rdi)\n	movq %rsp, 168(%rdi)\n"
	"	pushfq\n	popq %rax\n	movq %rax, 184(%rdi)\n"
	"	movq %rdx, %r9\n	movq %rsi, %r11\n"
	"	movl %ecx, %eax\n	movq %rcx, %rdx\n	shrq $32, %rdx\n"
	"	xsave64 (%r9)\n"
	"	movq %rdi, %rsp\n"
	".cfi_remember_state\n.cfi_undefined %rip\n"
	"	leaq 8(%rdi), %rdx\n	leaq 312(%rdi), %rsi\n	movl (%rsi), %edi\n	xorl %eax, %eax\n	cld\n"
	/* The handler keeps them in its frame, and they are ours. */
	"	xorl %ebx, %ebx\n	xorl %ebp, %ebp\n	xorl %r12d, %r12d\n	xorl %r13d, %r13d\n	xorl %r14d, %r14d\n	xorl %r15d, %r15d\n"
	"	jmp *%r11\n"
	".cfi_restore_state\n"
	".globl rs_guard_handler_ran\n.hidden rs_guard_handler_ran\n"
	"	nop\n" /* who looks up the pc before this one */
	"rs_guard_handler_ran:\n"
	"	ret\n"
	".cfi_endproc\n"
	".size rs_guard_run_handler, .-rs_guard_run_handler\n");
_Static_assert(offsetof(struct frame, uc) == 8 && offsetof(struct frame, info) == 312 && offsetof(ucontext_t, uc_mcontext.gregs) == 40 && REG_R12 == 4 && REG_RBP == 10 && REG_RSP == 15 && REG_EFL == 17, "");

/* At the top of the program's alternate stack, or below what the thread stands in. */
static bool enters(uint64_t sp, uint64_t flags, const stack_t *stack)
{
	return flags & SA_ONSTACK && stack->ss_size && !(stack->ss_flags & SS_DISABLE) && sp - (uint64_t)stack->ss_sp - 1 >= stack->ss_size;
}

static uint64_t top_of(const struct rs_guard_log *t, const struct taken *s, const stack_t *stack)
{
	return (enters(t->sp, s->action.flags, stack) ? (uint64_t)stack->ss_sp + stack->ss_size : t->sp - DEPTH) & -16ull;
}

static bool has_room(const struct rs_guard_log *t, const struct taken *s, const stack_t *stack, uint64_t top)
{
	enum { OURS = 1024 };
	const struct rs_thread *own = rs_thread_tls;
	uint64_t here = (uint64_t)__builtin_frame_address(0);
	if (enters(t->sp, s->action.flags, stack))
		return top - (uint64_t)stack->ss_sp >= s->fp.bytes + 4 + 64 + sizeof(struct frame) + 24; /* else the kernel ends the process */
	if (!t->sp || top + DEPTH + 16 < t->sp || here < top + OURS)
		return false;
	/* Of coroutines nobody says how large their stacks are. */
	if (!own || t->sp - own->stack_lo >= own->stack_hi - own->stack_lo)
		return false;
	return top - own->stack_lo >= ROOM;
}

/* What is left below is the same in a recording and in a re-execution. */
static __attribute__((noinline)) void clear(const struct rs_guard_log *t, uint64_t lo, uint64_t hi)
{
	enum { OWN = 512 };
	uint64_t here = (uint64_t)__builtin_frame_address(0);
	rs_os_clear((void *)lo, hi - lo);
	if (here < t->sp && t->sp - here < USED && hi < here && t->sp - lo < 2 * USED)
		rs_os_clear((void *)(t->sp - USED), here - OWN - (t->sp - USED));
}

static __attribute__((noinline)) void run(struct rs_guard_log *t, const struct noted *n, const uint64_t *kernel_mask)
{
	const struct taken *s = &n->of;
	uint64_t bytes = s->fp.bytes + 4, fp = (n->top - bytes) & -64ull, at = ((fp - sizeof(struct frame)) & -16ull) - 8, sp = t->sp;
	if (enters(n->sp, s->action.flags, &n->stack)) {
		struct rs_guard_frame where = {sizeof(struct frame), bytes, at, fp};
		rs_guard_stack_small(t, &n->stack, &where);
		at = where.at, fp = where.fp;
		rs_os_clear((void *)fp, bytes);
	}
	struct frame *f = (struct frame *)at;
	ucontext_t *uc = (ucontext_t *)f->uc;
	/* Its own frames and those of our wrapper begin below: what lies there now shows in their holes. */
	uint64_t below = n->top == ((n->sp - DEPTH) & -16ull) ? BELOW : 0;
	rs_os_clear((void *)(at - below), n->top - at + below);
	f->restorer = s->action.restorer;
	rs_os_copy(&f->info, &s->info, sizeof f->info);
	uc->uc_flags = s->flags;
	uc->uc_stack = n->stack;
	uc->uc_mcontext.gregs[REG_CSGSFS] = (greg_t)s->selectors;
	uc->uc_mcontext.fpregs = (void *)fp;
	uc->uc_sigmask.__val[0] = n->mask;
	rs_os_copy((char *)fp + FP_SOFTWARE, &s->fp, sizeof s->fp);
	*(uint32_t *)(fp + s->fp.bytes) = FP_MAGIC_END;
	of(t)->entered = (uint64_t)uc;
	const struct rs_guard_within ours = {(uint64_t)uc->uc_mcontext.gregs, fp + FP_XMM, (sp - DEPTH) & -16ull, sp};
	rs_guard_stack_enter(t, &ours);
	if (kernel_mask)
		set_mask(*kernel_mask);
	rs_guard_run_handler(f, s->entry, (void *)fp, s->fp.features);
	rs_guard_stack_leave(t, (uint64_t)uc->uc_mcontext.gregs);
	t->sp = sp;
	clear(t, at, n->top);
}

/* All signals are blocked. The kernel is to deliver what waits, now. */
static void at_once(struct rs_guard_log *t, uint64_t *mask)
{
	struct waiting *w = of(t);
	while (t->signals && send_again(t, &w->signal[0].info) >= 0) {
		uint64_t bit = BIT(w->signal[0].info.si_signo);
		w->at_once |= bit;
		*mask &= ~bit;
		drop_first(t, 0);
	}
	rs_guard_lost(RS_GUARD_LOST_SIGNAL);
}

static void record(struct rs_guard_log *t, uint64_t what)
{
	struct noted n;
	struct waiting *w = of(t);
	if (!rs_guard_begin_act(t))
		return;
	uint64_t mask = set_mask(~0ull) & ~bits(t);
	if (!t->signals) {
		set_mask(mask);
		rs_guard_no_act(t);
		return;
	}
	rs_os_clear(&n, sizeof n);
	n.of = w->signal[0];
	if (!rs_guard_stack_taken())
		RS_SYS2(SYS_sigaltstack, NULL, &n.stack);
	rs_guard_stack_show(&n.stack);
	n.top = top_of(t, &n.of, &n.stack);
	if (!has_room(t, &n.of, &n.stack, n.top)) {
		at_once(t, &mask);
		rs_guard_no_act(t);
		set_mask(mask);
		return;
	}
	drop_first(t, 0);
	/* What the handler has blocked comes when it is over, by the kernel. */
	for (uint32_t i = 0; i < t->signals;)
		if (n.of.action.mask & BIT(w->signal[i].info.si_signo) && send_again(t, &w->signal[i].info) >= 0)
			drop_first(t, i);
		else
			i++;
	n.before = what, n.sp = t->sp, n.mask = mask;
	n.ticket = rs_guard_ticket(RS_GUARD_SIGNALS_ORDER);
	void *to = rs_guard_call_put(t, (uint16_t)(RS_GUARD_SIGNAL_NUMBER + n.of.info.si_signo), n.of.info.si_signo, sizeof n);
	if (to)
		rs_os_copy(to, &n, sizeof n);
	mask |= n.of.action.mask | (n.of.action.flags & SA_NODEFER ? 0 : BIT(n.of.info.si_signo));
	run(t, &n, &mask);
}

bool rs_guard_signal_next(const struct rs_guard_log *t)
{
	uint64_t what = rs_guard_next(t);
	return what >> 56 == RS_GUARD_CALL && (what & 0xffffffffffffffull) > RS_GUARD_SIGNAL_NUMBER;
}

static bool follow(struct rs_guard_log *t, uint64_t what)
{
	struct noted n;
	int64_t sig;
	uint32_t bytes;
	if (!rs_guard_signal_next(t))
		return false;
	const struct noted *e = (const struct noted *)(t->bytes + t->bytes_at + 8);
	uint16_t number = (uint16_t)rs_guard_next(t);
	/* Where accesses are judged wrappers that tell more have other frames. */
	if (e->before != what || (e->sp != t->sp && !rs_config.races))
		return false;
	STORE(t->inner, 0);
	if (!rs_guard_turn(t, RS_GUARD_SIGNALS_ORDER, e->ticket))
		return true;
	if (!(e = rs_guard_call_take(t, number, &sig, &bytes)) || bytes != sizeof n)
		return true;
	rs_os_copy(&n, e, sizeof n);
	rs_guard_next_turn(RS_GUARD_SIGNALS_ORDER, n.ticket);
	if (rs_config.races)
		rs_guard_race_all(); /* who sent it is not known */
	run(t, &n, NULL);
	return true;
}

bool rs_guard_signals(struct rs_guard_log *t, uint64_t what)
{
	uint32_t mode = rs_guard_mode();
	if (RS_LIKELY(mode == RS_GUARD_RECORD && !LOAD(t->signals)))
		return false;
	if (mode == RS_GUARD_REPLAY)
		return waiting && follow(t, what);
	/* glibc's handler of that signal looks whose it is by a call, and may take ours, as it is put over our handler with the first thread that is made: what runs on top of it would be over with the mask that handlers have there, and
	 * the signal that waits here stay blocked for good when that one returns. */
	if (mode == RS_GUARD_OFF || mask_now() & BIT(RS_WORLD_SIGNAL))
		return false;
	STORE(t->inner, 0);
	record(t, what);
	return true;
}

/* --- the kernel delivers ------------------------------------------------------------------------------------------------------------ */

/* The thread is to come out of what it waits in. False: it is in no wait. early: the signal was there before it: natively the handler would have run, and then the call been made. */
static bool wake(const struct rs_guard_log *t, ucontext_t *uc, bool early)
{
	greg_t *g = uc->uc_mcontext.gregs;
	const uint8_t *pc = (const uint8_t *)g[REG_RIP];
	if (rs_hook_at_call((uintptr_t)pc)) {
		struct rs_call *c = (struct rs_call *)g[REG_RSP];
		bool to_be_made = rs_hook_at_call((uintptr_t)pc + 2), waits = c->see == 1 && LOAD(t->state) == RS_GUARD_IN_CALL && (c->guard_state == RS_GUARD_CALL_NOTED || c->guard_state == RS_GUARD_CALL_WAIT);
		if (waits && (to_be_made || (early && g[REG_RAX] == -EINTR)))
			c->guard_again = 1;
		if (!to_be_made)
			return true;
		if (waits) {
			g[REG_RAX] = -EINTR;
			g[REG_RIP] += 2;
		}
		return waits;
	}
	if ((uintptr_t)pc - (uintptr_t)__ehdr_start >= (uintptr_t)_end - (uintptr_t)__ehdr_start || pc[0] != 0x0f || pc[1] != 0x05 || g[REG_RAX] != SYS_futex)
		return false;
	unsigned op = (unsigned)g[REG_RSI] & FUTEX_CMD_MASK;
	if (op != FUTEX_WAIT && op != FUTEX_WAIT_BITSET)
		return false;
	g[REG_RAX] = -EAGAIN; /* as if the word had been another one: all waits of ours look again */
	g[REG_RIP] += 2;
	return true;
}

static bool synchronous(int sig, int code)
{
	return code > 0 && (sig == SIGSEGV || sig == SIGBUS || sig == SIGFPE || sig == SIGILL || sig == SIGTRAP || sig == SIGSYS);
}

/* What shows where the thread is, by its sense. */
static bool samples(int sig) { return sig == SIGPROF || sig == SIGVTALRM; }

/* mask: the thread's while the stub runs. */
static bool may_wait(const struct rs_guard_log *t, int sig, const siginfo_t *info, const ucontext_t *uc, uint64_t mask, bool on_stack, struct taken *s)
{
	const char *fp = (const char *)uc->uc_mcontext.fpregs;
	uint64_t then = uc->uc_sigmask.__val[0];
	if (t->signals == MOST || of(t)->at_once & BIT(sig) || synchronous(sig, info->si_code) || samples(sig) || !fp)
		return false;
	/* In a wait with a mask of its own the handler does not run with that of the frame. */
	stack_t stack = uc->uc_stack;
	rs_guard_stack_show(&stack);
	if (then & BIT(sig) || then & ~mask || rs_signal_at_stub((uintptr_t)uc->uc_mcontext.gregs[REG_RIP]) || (unsigned)stack.ss_flags & AUTODISARM)
		return false;
	if (RS_SYS4(SYS_rt_sigaction, sig, NULL, &s->action, 8) < 0 || s->action.handler != s->entry || s->action.flags & SA_RESETHAND)
		return false;
	if (!on_stack)
		s->action.flags &= ~(uint64_t)SA_ONSTACK;
	rs_os_copy(&s->fp, fp + FP_SOFTWARE, sizeof s->fp);
	return s->fp.magic == FP_MAGIC && s->fp.bytes >= FP_HEADER + FP_HEADER_BYTES && s->fp.bytes <= DEPTH;
}

static void poke(void)
{
	uint32_t free = 0;
	if (!__atomic_exchange_n(asked, 1, __ATOMIC_ACQ_REL) && __atomic_compare_exchange_n(rs_guard_request, &free, RS_GUARD_LOOK, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
		RS_SYS3(SYS_futex, rs_guard_request, FUTEX_WAKE, 1 << 30);
}

/* All signals are blocked; mask: as it was. */
static __attribute__((noinline)) bool arrived(int sig, const siginfo_t *info, ucontext_t *uc, uintptr_t entry, bool has_info, bool on_stack, uint64_t mask)
{
	struct rs_guard_log *t = rs_guard_self();
	rs_guard_call_cut(uc);
	if (!t || rs_os_tid() != t->tid) {
		rs_guard_lost(RS_GUARD_LOST_SIGNAL);
		set_mask(mask);
		return false;
	}
	struct waiting *w = of(t);
	if (w->entered == (uint64_t)uc) {
		w->entered = 0;
		STORE(t->inner, 0);
		set_mask(mask);
		return false;
	}
	bool later = false;
	if (rs_guard_mode() == RS_GUARD_REPLAY) {
		/* It was opened for a moment, and is for when the process goes on. */
		later = has_info && !synchronous(sig, info->si_code) && send_again(t, info) >= 0;
	} else if (has_info && world->session && !t->outside && !LOAD(world->lost)) {
		struct taken *s = &w->signal[t->signals < MOST ? t->signals : MOST - 1];
		struct taken new = {.entry = entry, .flags = uc->uc_flags, .selectors = (uint64_t)uc->uc_mcontext.gregs[REG_CSGSFS]};
		if ((later = may_wait(t, sig, info, uc, mask, on_stack, &new))) {
			rs_os_copy(&new.info, info, sizeof new.info);
			*s = new;
			if (!t->signals) {
				w->early = 0;
				w->ran = ran_ns();
				STORE(w->since, rs_os_now_ns());
			}
			STORE(t->signals, t->signals + 1);
			STORE(t->quick, 0);
			w->early |= !wake(t, uc, false);
			poke();
		}
	}
	if (later) {
		uc->uc_sigmask.__val[0] |= BIT(sig);
		return true; /* rt_sigreturn sets the mask */
	}
	w->at_once &= ~BIT(sig);
	if (!has_info || !synchronous(sig, info->si_code) || !rs_guard_fault_comes(t, sig, info, uc))
		rs_guard_lost(RS_GUARD_LOST_SIGNAL);
	/* So are those that waited before: what the handler has blocked waits in the kernel. */
	uint64_t waits = bits(t);
	while (t->signals && send_again(t, &w->signal[0].info) >= 0)
		drop_first(t, 0);
	waits &= ~bits(t);
	if (waits) {
		struct action a = {0};
		RS_SYS4(SYS_rt_sigaction, sig, NULL, &a, 8);
		uc->uc_sigmask.__val[0] &= ~waits;
		mask = (mask & ~waits) | a.mask | (waits & BIT(sig));
	}
	set_mask(mask);
	return false;
}

/* No function is called before the signals are blocked: their code is not among what rs_guard_signal_arrives knows. */
RS_GUARD_ARRIVES bool rs_guard_signal(int sig, const siginfo_t *info, ucontext_t *uc, uintptr_t entry, bool has_info, bool on_stack)
{
	uint64_t mask = 0, all = ~rs_os_open;
	if (!waiting || !LOAD(world->mode)) {
		rs_guard_lost(RS_GUARD_LOST_SIGNAL);
		return false;
	}
	RS_SYS4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask, 8);
	return arrived(sig, info, uc, entry, has_info, on_stack, mask);
}

/* handle(sig, info, context, stub), on the frame f. */
__attribute__((noreturn)) static void go_on(const struct frame *f, int sig, uint32_t stub, void (*handle)(int, siginfo_t *, void *, uint32_t))
{
	__asm__ volatile("movq %0, %%rsp\n\tjmp *%1" : : "r"(f), "r"(handle), "D"((long)sig), "S"(&f->info), "d"(f->uc), "c"(stub) : "memory");
	__builtin_unreachable();
}

/* As the kernel where it has no room for a frame. When the stub has returned. */
static void no_room(int sig, ucontext_t *uc)
{
	struct action a = {0}, none = {0};
	siginfo_t info;
	uint64_t *mask = &uc->uc_sigmask.__val[0];
	set_mask(~0ull);
	RS_SYS4(SYS_rt_sigaction, SIGSEGV, NULL, &a, 8);
	if (sig == SIGSEGV || *mask & BIT(SIGSEGV) || a.handler == (uintptr_t)SIG_IGN)
		RS_SYS4(SYS_rt_sigaction, SIGSEGV, &none, NULL, 8);
	*mask &= ~BIT(SIGSEGV);
	rs_os_clear(&info, sizeof info);
	info.si_signo = SIGSEGV;
	info.si_code = SI_KERNEL;
	RS_SYS4(SYS_rt_tgsigqueueinfo, rs_os_pid(), rs_os_tid(), SIGSEGV, &info);
}

bool rs_guard_signal_move(int sig, ucontext_t *uc, uint32_t stub, bool on_stack, void (*handle)(int, siginfo_t *, void *, uint32_t))
{
	uint64_t sp = (uint64_t)uc->uc_mcontext.gregs[REG_RSP];
	const char *fp = (const char *)uc->uc_mcontext.fpregs;
	struct software s;
	/* Who was on it is a handler of ours that was interrupted. */
	if (!rs_guard_stack_has((uintptr_t)uc) || rs_guard_stack_has(sp) || !fp)
		return false;
	rs_os_copy(&s, fp + FP_SOFTWARE, sizeof s);
	struct rs_guard_frame to = {.bytes = sizeof(struct frame), .fp_bytes = s.magic == FP_MAGIC ? s.extended : FP_HEADER};
	if (!rs_guard_stack_enters(sp - RED_ZONE, on_stack, &to)) {
		no_room(sig, uc);
		return true;
	}
	struct frame *f = (struct frame *)to.at;
	ucontext_t *moved = (ucontext_t *)f->uc;
	rs_os_copy(f, (const char *)uc - offsetof(struct frame, uc), sizeof *f);
	rs_os_copy((void *)to.fp, fp, to.fp_bytes);
	moved->uc_mcontext.fpregs = (void *)to.fp;
	rs_guard_stack_show(&moved->uc_stack);
	go_on(f, sig, stub, handle);
}

bool rs_guard_signal_arrives(const greg_t *g)
{
	extern const char __start_rs_arrives[] RS_HIDDEN, __stop_rs_arrives[] RS_HIDDEN;
	uintptr_t pc = (uintptr_t)g[REG_RIP];
	return rs_signal_at_stub(pc) || pc - (uintptr_t)__start_rs_arrives < (uintptr_t)__stop_rs_arrives - (uintptr_t)__start_rs_arrives;
}

void rs_guard_signal_begins(struct rs_guard_half *h, ucontext_t *uc)
{
	rs_guard_stack_began(uc);
	struct rs_guard_log *t = waiting && rs_guard_mode() == RS_GUARD_RECORD ? rs_guard_self() : NULL;
	if (!t || rs_os_tid() != t->tid)
		return;
	if (!t->inner && t->state == RS_GUARD_RUNS)
		return;
	*h = (struct rs_guard_half){t->sp, t->pending, t->vdso_sp, t->wait, t->inner, t->state, t->vdso_number, true, !t->half, t->changes, t->changes_info, t->changes_found};
	/* A checkpoint may come between any two of these, but where it finds the thread within an act. */
	if (h->outermost)
		STORE(t->half, (uintptr_t)h);
	STORE(t->state, RS_GUARD_RUNS);
	t->pending = 0;
	rs_guard_word_left(t);
	STORE(t->inner, 0);
}

/* All signals are blocked. */
static void rest(struct rs_guard_log *t, const struct rs_guard_half *h)
{
	t->changes_info = h->changes_info, t->changes_found = h->changes_found, t->changes = h->changes, t->changes_object = NULL;
	t->sp = h->sp, t->pending = h->pending, t->vdso_sp = h->vdso_sp, t->wait = h->wait, t->vdso_number = h->vdso_number;
	STORE(t->inner, h->inner);
	STORE(t->state, h->state);
	if (h->outermost)
		STORE(t->half, 0);
}

bool rs_guard_signals_half(void)
{
	enum { STACK = 8 << 20 };
	const struct rs_world_thread *w;
	bool is = false;
	for (uint32_t i = 0; waiting && (w = rs_world_thread(i)); i++)
		for (uint32_t k = 0; k < world->logs; k++) {
			struct rs_guard_log *t = rs_guard_log(k);
			if (!w->tid || t->tid != w->tid || !t->half)
				continue;
			const greg_t *g = rs_guard_stopped_at(w);
			uint64_t sp = g ? (uint64_t)g[REG_RSP] : t->sp;
			if (sp - t->half < STACK || (t->half - t->alt_lo < t->alt_size && sp - t->alt_lo > t->alt_size && !rs_guard_stack_has(sp)))
				t->half = 0;
			is |= t->half != 0;
		}
	return is;
}

void rs_guard_signal_over(ucontext_t *uc, const struct rs_guard_half *h)
{
	rs_guard_stack_over(uc);
	/* Signals stay blocked while an epoch is executed again. */
	struct rs_guard_log *t = waiting && rs_guard_mode() ? rs_guard_self() : NULL;
	if (!t || rs_os_tid() != t->tid)
		return;
	if (rs_guard_mode() == RS_GUARD_RECORD) {
		/* rt_sigreturn sets a mask that may have them blocked: the kernel decides again. */
		set_mask(~0ull);
		while (t->signals && send_again(t, &of(t)->signal[0].info) >= 0)
			drop_first(t, 0);
		if (h->is)
			rest(t, h);
		return;
	}
	if (rs_guard_mode() == RS_GUARD_REPLAY)
		uc->uc_sigmask.__val[0] = mask_now();
}

/* --- calls that it interrupted ---------------------------------------------------------------------------------------------------- */

bool rs_guard_sys_again(struct rs_call *c)
{
	unsigned state = c->guard_state;
	if (c->result != -EINTR || (state != RS_GUARD_CALL_NOTED && state != RS_GUARD_CALL_WAIT))
		return false;
	struct rs_guard_log *t = rs_guard_self();
	unsigned mode = rs_guard_mode();
	bool handles = mode == RS_GUARD_RECORD ? t && __atomic_load_n(&t->signals, __ATOMIC_ACQUIRE) : t && mode == RS_GUARD_REPLAY && rs_guard_signal_next(t);
	if (!handles && !(t && c->guard_again))
		return false;
	rs_guard_call_take_back(c);
	if (c->result != -EINTR)
		return false; /* what is left of it there was nowhere to tell: the handler runs behind it */
	c->guard_state = c->guard_again || mode != RS_GUARD_RECORD ? RS_GUARD_CALL_UNSEEN : RS_GUARD_CALL_INTERRUPTED;
	t->pending = 0;
	__atomic_store_n(&t->state, RS_GUARD_RUNS, __ATOMIC_RELEASE);
	__atomic_store_n(&t->inner, 0, __ATOMIC_RELEASE);
	return true;
}

/* --- who waits for long ---------------------------------------------------------------------------------------------------------------- */

/* In a call that waits, or about to make one. */
static bool in_call(const ucontext_t *uc)
{
	const greg_t *g = uc->uc_mcontext.gregs;
	const uint8_t *pc = (const uint8_t *)g[REG_RIP], *at = g[REG_RAX] == -EINTR ? pc - 2 : pc;
	return rs_hook_at_call((uintptr_t)at + 2) || ((uintptr_t)at - (uintptr_t)__ehdr_start < (uintptr_t)_end - (uintptr_t)__ehdr_start && at[0] == 0x0f && at[1] == 0x05);
}

/* A thread that has not had a processor for so long natively would not have handled anything either. */
static bool is_late(const struct rs_guard_log *t, const ucontext_t *uc) { return in_call(uc) || ran_ns() - of(t)->ran >= LATE_NS; }

bool rs_guard_signals_at_once(uint32_t tid, ucontext_t *uc)
{
	bool waits = false;
	for (uint32_t i = 0; waiting && LOAD(world->mode) == RS_GUARD_RECORD && i < world->logs; i++) {
		struct rs_guard_log *t = rs_guard_log(i);
		if (t->tid != tid || !t->signals)
			continue;
		if (!wake(t, uc, of(t)->early) && LOAD(t->inner) != RS_GUARD_INNER && is_late(t, uc))
			at_once(t, &uc->uc_sigmask.__val[0]);
		waits |= t->signals != 0;
	}
	return waits;
}

uint64_t rs_guard_signals_late(uint64_t now)
{
	uint64_t next = 0;
	if (!waiting || !LOAD(*asked))
		return 0;
	STORE(*asked, 0);
	RS_BARRIER();
	for (uint32_t i = 0; i < world->logs; i++) {
		struct rs_guard_log *t = rs_guard_log(i);
		uint32_t tid = LOAD(t->tid);
		if (!tid || !LOAD(t->signals))
			continue;
		uint64_t due = LOAD(of(t)->since) + LATE_NS;
		if (due <= now && LOAD(world->mode) == RS_GUARD_RECORD && rs_world_own_action() == 0) {
			siginfo_t info;
			rs_os_clear(&info, sizeof info);
			info.si_signo = RS_WORLD_SIGNAL;
			info.si_code = SI_QUEUE;
			info.si_pid = (pid_t)rs_os_pid();
			info.si_value.sival_int = RS_GUARD_SIGNAL_LATE;
			RS_SYS4(SYS_rt_tgsigqueueinfo, rs_os_pid(), tid, RS_WORLD_SIGNAL, &info);
			due = now + LATE_NS;
		}
		next = next && next < due ? next : due;
	}
	if (next)
		STORE(*asked, 1);
	return next;
}

long rs_guard_signals_begin(void)
{
	struct waiting *w = rs_guard_map(RS_ARENA_OWN, RS_GUARD_LOGS * sizeof *w);
	asked = rs_guard_map(RS_ARENA_OWN, sizeof *asked);
	if (!w || !asked)
		return -ENOMEM;
	world = rs_guard_world();
	waiting = w;
	return 0;
}
