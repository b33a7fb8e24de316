/* guardstack.c: an alternate stack of ours for each thread that has none. See guardstack.h.
 *
 * A stop, and a signal whose handler waits, come wherever a thread is, and no re-execution has them. The kernel's frame (3 KiB) on the program's stack is dead when they are over, but a later frame of the program's may lie over it, with holes that show
 * what was there before: a word of a stack that differs. Where the thread has an alternate stack the kernel takes that one. It is private memory of the agent's, which goes back with the threads (a handler of ours may stand on it at a checkpoint) and is
 * not compared. The program is told that it has none, and no handler of its runs there (guardsignal.c).
 *
 * So handlers are set with SA_ONSTACK, until a thread of the program sets a stack of its own: what lies there while it is not in use is the program's business (coroutines are made so), and only those signals come there that it says.
 *
 * All at once, before the first epoch: what is mapped in an epoch a rollback takes away. General registers only. */
#include "guardstack.h"
#include "guardsync.h"
#include "calls.h"
#include "guardsignal.h"
#include <errno.h>
#include <sys/mman.h>

enum { BYTES = 64 << 10, LIST = RS_PAGE };
static char *stacks;                /* of each log LIST bytes, and the stack */
struct within { uint32_t n; struct rs_guard_within is[(LIST - 8) / sizeof(struct rs_guard_within)]; };
_Static_assert(sizeof(struct within) <= LIST, "");
static uint32_t theirs;             /* the program has alternate stacks of its own */

long rs_guard_stack_begin(void)
{
	char *p = rs_os_map((size_t)RS_GUARD_LOGS * BYTES);
	if (!p)
		return -ENOMEM;
	RS_SYS3(SYS_madvise, p, (size_t)RS_GUARD_LOGS * BYTES, MADV_NOHUGEPAGE); /* a page or two of each are written */
	stacks = p;
	return 0;
}

bool rs_guard_stack_has(uintptr_t p) { return stacks && p - (uintptr_t)stacks < (size_t)RS_GUARD_LOGS * BYTES; }

stack_t rs_guard_stack_of(const struct rs_guard_log *t)
{
	stack_t s;
	rs_os_clear(&s, sizeof s);
	if (!stacks || !t || rs_guard_is_spare(t))
		s.ss_flags = SS_DISABLE;
	else
		s.ss_sp = stacks + (size_t)t->index * BYTES + LIST, s.ss_size = BYTES - LIST;
	return s;
}

void rs_guard_stack_take(const struct rs_guard_log *t)
{
	stack_t now, ours = rs_guard_stack_of(t);
	if (!rs_sandboxed && !(ours.ss_flags & SS_DISABLE) && RS_SYS2(SYS_sigaltstack, NULL, &now) == 0 && now.ss_flags & SS_DISABLE)
		RS_SYS2(SYS_sigaltstack, &ours, NULL);
}

void rs_guard_stack_show(stack_t *s)
{
	if (!rs_guard_stack_has((uintptr_t)s->ss_sp))
		return;
	rs_os_clear(s, sizeof *s);
	s->ss_flags = SS_DISABLE;
}

static struct within *of(const struct rs_guard_log *t) { return stacks && !rs_guard_is_spare(t) ? (struct within *)(stacks + (size_t)t->index * BYTES) : NULL; }

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

/* Those of faults come where the code is at fault, in a re-execution too; those of profilers do not wait. */
bool rs_guard_stack_wanted(int sig)
{
	const uint64_t at_once = 1ull << (SIGSEGV - 1) | 1ull << (SIGBUS - 1) | 1ull << (SIGFPE - 1) | 1ull << (SIGILL - 1) | 1ull << (SIGTRAP - 1) | 1ull << (SIGSYS - 1) | 1ull << (SIGPROF - 1) | 1ull << (SIGVTALRM - 1);
	return stacks && !__atomic_load_n(&theirs, __ATOMIC_RELAXED) && sig >= 1 && sig <= 64 && !(at_once >> (sig - 1) & 1);
}

bool rs_guard_stack_set(void)
{
	if (!__atomic_exchange_n(&theirs, 1, __ATOMIC_RELAXED))
		rs_signal_own_stacks();
	return true;
}

void rs_guard_stack_forget(void)
{
	stack_t now, none = {.ss_flags = SS_DISABLE};
	if (!stacks)
		return;
	if (RS_SYS2(SYS_sigaltstack, NULL, &now) == 0 && rs_guard_stack_has((uintptr_t)now.ss_sp))
		RS_SYS2(SYS_sigaltstack, &none, NULL);
	rs_guard_stack_set();
}

void rs_guard_stack_is(const stack_t *s)
{
	bool has = s && !(s->ss_flags & SS_DISABLE) && !rs_guard_stack_has((uintptr_t)s->ss_sp);
	/* A handler may come between. */
	__atomic_store_n(&rs_guard_alt.size, 0, __ATOMIC_RELEASE);
	__atomic_store_n(&rs_guard_alt.lo, has ? (uintptr_t)s->ss_sp : 0, __ATOMIC_RELEASE);
	__atomic_store_n(&rs_guard_alt.size, has ? s->ss_size : 0, __ATOMIC_RELEASE);
}

/* The kernel looks at what the program gave it, and writes where it said. */
long rs_guard_stack_call(const struct rs_call *c)
{
	stack_t now, *old = (stack_t *)c->arg[1];
	long r = RS_SYS2(SYS_sigaltstack, c->arg[0], old);
	if (r != 0)
		return r;
	if (old)
		rs_guard_stack_show(old);
	if (!c->arg[0] || RS_SYS2(SYS_sigaltstack, NULL, &now) != 0)
		return 0;
	rs_guard_stack_is(&now);
	if (now.ss_flags & SS_DISABLE)
		rs_guard_stack_take(rs_guard_self()); /* it has given its own up */
	else
		rs_guard_stack_set();
	return 0;
}
