/* guardstack.c: an alternate stack of ours for each thread, and the program's own, which the kernel does not have. See guardstack.h.
 *
 * A stop, and a signal whose handler waits, come wherever a thread is, and no re-execution has them. The kernel's frame (3 KiB) on the program's stack is dead when they are over, but a later frame of the program's may lie over it, with holes that show
 * what was there before: a word of a stack that differs. And on an alternate stack of the program's that a handler is on there may be no room for a second frame: the kernel ends the process. So the kernel has ours all the time; it is private memory of
 * the agent's, which goes back with the threads (a handler of ours may stand on it at a checkpoint) and is not compared. What the program has set is kept here, with the thread's variables; sigaltstack is answered, and rt_sigreturn followed, as the kernel
 * would, and handlers run on frames that are made where the kernel would have made them (guardsignal.c).
 *
 * Handlers are set with SA_ONSTACK, whether the program asks for that or not, until a thread that has none of ours (there are too many, or it set its own while it stood on it) has one of its own: what lies there while it is not in use is the program's business
 * (coroutines are made so), and only those signals come there that it says.
 *
 * Ours are there all at once, before the first epoch: what is mapped in an epoch a rollback takes away. General registers only. */
#include "guardstack.h"
#include "guardsync.h"
#include "calls.h"
#include "guardsignal.h"
#include <errno.h>
#include <sys/mman.h>

enum { BYTES = 80 << 10, LIST = RS_PAGE, AREAS = 4, AREA = RS_PAGE, HEAD = LIST + AREAS * AREA };
enum { LEAST = 2048 /* the kernel's MINSIGSTKSZ */, SMALL = 8 << 10 };
#define AUTODISARM (1u << 31)
static char *stacks;                /* of each log LIST bytes, areas of registers, and the stack */
struct within { uint64_t area[AREAS]; uint32_t n, next; struct rs_guard_within is[(LIST - 8 * AREAS - 8) / sizeof(struct rs_guard_within)]; };
_Static_assert(sizeof(struct within) <= LIST, "");
static uint32_t given_back;         /* this process is a forked child, whose stacks the kernel has */
static uint32_t theirs;             /* it has one of a thread's that has none of ours */
/* ours: what the kernel has; size 0: what the program has set itself. is: what that is, as the kernel keeps it. */
RS_TLS struct { stack_t ours, is; } own;

static long kernel(const stack_t *set, stack_t *old) { return RS_SYS2(SYS_sigaltstack, set, old); }

long rs_guard_stack_begin(void)
{
	if (stacks) { /* a forked child's parent's, which it has given back */
		rs_os_unmap(stacks, (size_t)RS_GUARD_LOGS * BYTES);
		stacks = NULL;
	}
	char *p = rs_os_map((size_t)RS_GUARD_LOGS * BYTES);
	if (!p)
		return -ENOMEM;
	RS_SYS3(SYS_madvise, p, (size_t)RS_GUARD_LOGS * BYTES, MADV_NOHUGEPAGE); /* a page or two of each are written */
	stacks = p;
	if (given_back) {
		stack_t now;
		if (kernel(NULL, &now) == 0)
			rs_guard_stack_is(&now); /* which nobody has seen being set where the first epoch is late */
		given_back = theirs = 0;
		rs_signal_stacks(true);
	}
	return 0;
}

bool rs_guard_stack_free(uintptr_t sp)
{
	stack_t now;
	return given_back && !rs_guard_stack_has(sp) && kernel(NULL, &now) == 0 && !(now.ss_flags & SS_ONSTACK) && !rs_guard_stack_has((uintptr_t)now.ss_sp);
}

bool rs_guard_stack_has(uintptr_t p) { return stacks && p - (uintptr_t)stacks < (size_t)RS_GUARD_LOGS * BYTES; }

stack_t rs_guard_stack_of(const struct rs_guard_log *t)
{
	stack_t s;
	rs_os_clear(&s, sizeof s);
	if (!stacks || given_back || !t || rs_guard_is_spare(t))
		s.ss_flags = SS_DISABLE;
	else
		s.ss_sp = stacks + (size_t)t->index * BYTES + HEAD, s.ss_size = BYTES - HEAD;
	return s;
}

void rs_guard_stack_is(const stack_t *s)
{
	bool has = s && !(s->ss_flags & SS_DISABLE) && !rs_guard_stack_has((uintptr_t)s->ss_sp);
	struct rs_guard_log *t = rs_guard_mine;
	/* A handler may come between. */
	__atomic_store_n(&rs_guard_alt.size, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&rs_guard_alt.lo, has ? (uintptr_t)s->ss_sp : 0, __ATOMIC_RELEASE);
	__atomic_store_n(&rs_guard_alt.size, has ? s->ss_size : 0, __ATOMIC_RELEASE);
	if (t)
		t->alt_lo = rs_guard_alt.lo, t->alt_size = rs_guard_alt.size;
}

void rs_guard_stack_take(struct rs_guard_log *t)
{
	stack_t now, ours = rs_guard_stack_of(t);
	if (rs_sandboxed || ours.ss_flags & SS_DISABLE || kernel(NULL, &now) != 0)
		return;
	bool has = rs_guard_stack_has((uintptr_t)now.ss_sp), born = t->young && rs_guard_mode() == RS_GUARD_REPLAY;
	if (has && !born)
		return;
	/* Who is born has none; what the kernel has is ours, or the watch's, since the thread is the recording's. */
	if (born)
		now = (stack_t){.ss_flags = SS_DISABLE};
	/* From here on a handler has its frame moved; where it is on its own stack just now the kernel refuses. */
	own.is = now;
	own.ours = ours;
	if (!has && kernel(&ours, NULL) != 0)
		rs_os_clear(&own, sizeof own);
	t->alt_lo = rs_guard_alt.lo, t->alt_size = rs_guard_alt.size;
}

bool rs_guard_stack_taken(void) { return own.ours.ss_size != 0; }

void rs_guard_stack_show(stack_t *s)
{
	if (own.ours.ss_size)
		*s = own.is;
}

/* As the kernel's on_sig_stack. */
static bool is_on(uint64_t sp) { return !((unsigned)own.is.ss_flags & AUTODISARM) && sp > (uint64_t)own.is.ss_sp && sp - (uint64_t)own.is.ss_sp <= own.is.ss_size; }

bool rs_guard_stack_enters(uint64_t sp, bool on_stack, struct rs_guard_frame *f)
{
	const uint64_t lo = (uint64_t)own.is.ss_sp;
	bool on = own.is.ss_size && is_on(sp), enters = on_stack && own.is.ss_size && !on;
	uint64_t top = enters ? lo + own.is.ss_size : sp, fp = (top - f->fp_bytes) & -64ull, at = ((fp - f->bytes) & -16ull) - 8;
	f->fp = fp, f->at = at;
	if (enters)
		rs_guard_stack_small(rs_guard_self(), &own.is, f);
	return (!enters && !on) || (at > lo && at - lo <= own.is.ss_size);
}

void rs_guard_stack_began(ucontext_t *uc)
{
	rs_guard_stack_show(&uc->uc_stack);
	if (own.ours.ss_size && (unsigned)own.is.ss_flags & AUTODISARM)
		own.is = (stack_t){.ss_flags = SS_DISABLE}; /* where the thread stands is the program's all the same: rs_guard_alt */
}

/* What the kernel says of a stack of that size, without the address: it may be where this thread stands. */
static long judge(const stack_t *s)
{
	stack_t like = {.ss_sp = own.ours.ss_sp, .ss_flags = s->ss_flags, .ss_size = s->ss_size};
	if (s->ss_size >= own.ours.ss_size || s->ss_size < LEAST || rs_sandboxed)
		return s->ss_size < LEAST ? -ENOMEM : 0;
	uint64_t all = ~rs_os_open, mask = 0;
	RS_SYS4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask, 8);
	long r = kernel(&like, NULL);
	if (r == 0)
		kernel(&own.ours, NULL);
	RS_SYS4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, 8);
	return r;
}

/* As the kernel's do_sigaltstack, sp the program's. asks: what only the kernel knows is asked of it. */
static long set(const stack_t *s, uint64_t sp, bool asks)
{
	unsigned mode = (unsigned)s->ss_flags & ~AUTODISARM;
	if (is_on(sp))
		return -EPERM;
	if (mode != SS_DISABLE && mode != SS_ONSTACK && mode != 0)
		return -EINVAL;
	if (s->ss_sp == own.is.ss_sp && s->ss_size == own.is.ss_size && s->ss_flags == own.is.ss_flags)
		return 0;
	stack_t is = {.ss_flags = s->ss_flags};
	if (mode != SS_DISABLE) {
		long r = asks ? judge(s) : s->ss_size < LEAST ? -ENOMEM : 0;
		if (r != 0)
			return r;
		is.ss_sp = s->ss_sp, is.ss_size = s->ss_size;
	}
	own.is = is;
	rs_guard_stack_is(&is);
	return 0;
}

void rs_guard_stack_over(ucontext_t *uc)
{
	if (!own.ours.ss_size)
		return;
	set(&uc->uc_stack, (uint64_t)uc, false); /* as from Linux 6.12 on, by the stack that rt_sigreturn is called on */
	/* While an epoch is executed again it may be a watch's. */
	if (rs_guard_mode() != RS_GUARD_REPLAY || kernel(NULL, &uc->uc_stack) != 0)
		uc->uc_stack = own.ours;
}

static struct within *of(const struct rs_guard_log *t) { return stacks && t && !rs_guard_is_spare(t) ? (struct within *)(stacks + (size_t)t->index * BYTES) : NULL; }

/* A handler that was left by a jump is known by what has been pushed since: its frame lies below. */
static void drop_left(struct within *l, uint64_t here)
{
	while (l->n && l->is[l->n - 1].gregs < here && here - l->is[l->n - 1].gregs < 1 << 20)
		l->n--;
}

void rs_guard_stack_enter(const struct rs_guard_log *t, const struct rs_guard_within *w)
{
	struct within *l = of(t);
	if (!l)
		return;
	drop_left(l, w->gregs + REG_EFL * 8 + 8);
	if (l->n < sizeof l->is / sizeof *l->is)
		l->is[l->n++] = *w; /* of deeper ones all is compared */
}

void rs_guard_stack_leave(const struct rs_guard_log *t, uint64_t gregs)
{
	struct within *l = of(t);
	for (uint32_t i = l ? l->n : 0; i-- > 0;)
		if (l->is[i].gregs == gregs) {
			l->n = i;
			return;
		}
}

/* What has been left has that pc no longer, once the program has used the memory. */
bool rs_guard_stack_within(const struct rs_guard_log *t, uint32_t *i, struct rs_guard_within *w)
{
	const struct within *l = of(t);
	while (l && *i < l->n) {
		uint64_t pc;
		*w = l->is[(*i)++];
		if (rs_peek(&pc, w->gregs + REG_RIP * 8, sizeof pc) && pc == (uint64_t)rs_guard_handler_ran)
			return true;
	}
	return false;
}

/* A frame's registers are most of it. On a stack that has little room beside a frame they lie elsewhere, so that our functions find room where they are. What is on a stack nobody enters it beside: the next frame there may have the same area. */
void rs_guard_stack_small(const struct rs_guard_log *t, const stack_t *s, struct rs_guard_frame *f)
{
	struct within *l = of(t);
	const uint64_t lo = (uint64_t)s->ss_sp, top = lo + s->ss_size;
	uint32_t i = 0;
	if (!l || f->fp_bytes > AREA || f->at - lo >= SMALL)
		return;
	while (i < AREAS && l->area[i] != lo)
		i++;
	if (i == AREAS) {
		i = l->next++ % AREAS;
		l->area[i] = lo;
	}
	f->fp = (uint64_t)(l + 1) - sizeof *l + LIST + (uint64_t)i * AREA;
	f->at = ((top - f->bytes) & -16ull) - 8;
}

/* Those of faults come where the code is at fault, in a re-execution too; those of profilers do not wait. */
bool rs_guard_stack_wanted(int sig)
{
	const uint64_t at_once = 1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1) | 1ull << (SIGFPE - 1) | 1ull << (SIGILL - 1) | 1ull << (SIGTRAP - 1) | 1ull << (SIGSYS - 1) | 1ull << (SIGPROF - 1) | 1ull << (SIGVTALRM - 1);
	return stacks && !given_back && !__atomic_load_n(&theirs, __ATOMIC_RELAXED) && sig >= 1 && sig <= 64 && !(at_once >> (sig - 1) & 1);
}

void rs_guard_stack_forget(void)
{
	if (!stacks || given_back)
		return;
	if (own.ours.ss_size)
		kernel(&own.is, NULL);
	rs_os_clear(&own.ours, sizeof own.ours);
	given_back = 1;
	rs_signal_stacks(false);
}

void rs_guard_stack_put_off(void) { given_back = 1; }

/* Where the kernel has the program's own. */
static long by_kernel(const struct rs_call *c)
{
	stack_t now, *old = (stack_t *)c->arg[1];
	long r = kernel((const stack_t *)c->arg[0], old);
	if (r != 0 || !c->arg[0] || kernel(NULL, &now) != 0)
		return r;
	rs_guard_stack_is(&now);
	rs_guard_stack_take(rs_guard_self());
	if (!own.ours.ss_size && !(now.ss_flags & SS_DISABLE) && !__atomic_exchange_n(&theirs, 1, __ATOMIC_RELAXED))
		rs_signal_stacks(false);
	return 0;
}

long rs_guard_stack_call(const struct rs_call *c, bool done)
{
	const uint64_t sp = (uintptr_t)c + RS_CALL_FRAME;
	const void *want = (const void *)c->arg[0];
	stack_t new, was, *old = (stack_t *)c->arg[1];
	if (want && rs_in_vfork())
		return kernel(want, old);
	if (!own.ours.ss_size)
		return by_kernel(c);
	if (want && (done || rs_sandboxed))
		rs_os_copy(&new, want, sizeof new);
	else if (want && !rs_peek(&new, (uintptr_t)want, sizeof new))
		return -EFAULT;
	rs_os_clear(&was, sizeof was); /* its padding too, as the kernel does */
	was.ss_sp = own.is.ss_sp, was.ss_size = own.is.ss_size;
	was.ss_flags = (int)(((unsigned)own.is.ss_flags & AUTODISARM) | (!was.ss_size ? SS_DISABLE : is_on(sp) ? SS_ONSTACK : 0));
	long r = want ? set(&new, sp, !done) : 0;
	if (r != 0 || !old)
		return r;
	if (!done && (r = kernel(NULL, old)) != 0)
		return r; /* it cannot be written to */
	rs_os_copy(old, &was, sizeof was);
	return 0;
}
