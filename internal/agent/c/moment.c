/* moment.c: where a lock was taken, without walking the stack at that time.
 *
 * Nearly every lock is given up without anybody having asked where it was taken; a walk for each costs more than the lock. So taking a lock notes a
 * *moment*: pc, rsp, rbp and the RS_MOMENT_WORDS words of the stack from rsp on. When somebody asks while it is held (a nesting that was not sent
 * before, a wait, a misuse, the thread's end), the stack is walked over these words and then over the thread's stack as it is now. That finds what a
 * walk at the time would have found, as long as the frame that reaches beyond the words has not been left since. If a frame of the same function ends
 * at the same place now, it is taken for that one; else the stack ends there.
 *
 * Whether frames are left depends on the code that takes the lock, and is tried out: the first TRIALS times that a call site takes a lock the stack
 * is walked, and when that lock is given up all words that the walk used beyond the moment's must be as they were. Only a site that passed every time
 * is trusted with moments. A trusted site's lock given up after its frames were left, or one that fails a trial, has the site's stacks walked
 * at once from then on.
 *
 * Async-signal-safe; the sites are shared by the threads without a lock.
 */
#include "core.h"
#include "sync.h"

enum { PROBES = 4, STRAY = 0xffff };

/* pc << 16 | trials passed, or STRAY; 0: free. A place is never given to another pc: sites that find none are as STRAY. */
uint64_t rs_sites[1 << RS_SITE_BITS];

static uint64_t *site_of(uintptr_t pc)
{
	unsigned at = rs_site_place(pc);
	for (unsigned i = 0; i < PROBES; i++) {
		uint64_t *p = &rs_sites[(at + i) & ((1 << RS_SITE_BITS) - 1)], v = __atomic_load_n(p, __ATOMIC_RELAXED);
		if (v == 0 && __atomic_compare_exchange_n(p, &v, pc << 16, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			return p;
		if (v >> 16 == (pc << 16) >> 16)
			return p;
	}
	return NULL;
}

static inline void judge(uintptr_t pc, bool passed)
{
	uint64_t *p = site_of(pc), v = p ? __atomic_load_n(p, __ATOMIC_RELAXED) : 0;
	if (!p || (v & 0xffff) == STRAY)
		return;
	/* (Threads may lose each other's counts, not a failure for good: a site that strays once does so again.) */
	if (!passed)
		__atomic_store_n(p, v | STRAY, __ATOMIC_RELAXED);
	else if ((v & 0xffff) < RS_SITE_TRIALS)
		__atomic_compare_exchange_n(p, &v, v + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

/* Walks, and notes what the walk found beyond the words that a moment would have. */
static __attribute__((noinline)) uint64_t try(struct rs_thread *t, struct rs_moment *m, struct rs_site at, uintptr_t rsp)
{
	struct rs_trail trail;
	uint32_t id = rs_stack_trail(t, at.pc, at.fp, rs_config.stack_depth, &trail);
	if (trail.unfit || id == 0)
		return id;
	m->pc = at.pc;
	m->rsp = rsp;
	m->n = 0;
	for (unsigned i = 0; i < trail.n && m->n < RS_MOMENT_WORDS / 2; i++)
		if (trail.at[i] - rsp > RS_MOMENT_SPAN - 8) {
			m->word[2 * m->n] = trail.at[i];
			m->word[2 * m->n + 1] = trail.value[i];
			m->n++;
		}
	return id | RS_INFO_TRIAL;
}

uint64_t rs_moment_take(struct rs_thread *t, struct rs_sync_state *s, uint32_t n, struct rs_site at)
{
	if (RS_LIKELY(s && rs_moment_fits(t, n, at))) {
		bool trusted = rs_moment_trusted(at.pc);
		uint64_t *site = trusted ? NULL : site_of(at.pc), v = site ? __atomic_load_n(site, __ATOMIC_RELAXED) & 0xffff : STRAY;
		if (trusted || v == RS_SITE_TRIALS) {
			rs_moment_note(&s->moment[n], at);
			return RS_STACK_LATER;
		}
		if (v < RS_SITE_TRIALS)
			return try(t, &s->moment[n], at, (uintptr_t)at.fp + 16);
	}
	return rs_site_stack(t, at);
}

void rs_moment_again(struct rs_thread *t, struct rs_sync_state *s, uint32_t n, struct rs_site at)
{
	if (RS_INFO_STACK(t->held[n].info) == RS_STACK_LATER)
		rs_moment_note(&s->moment[n], at);
	else
		t->held[n].info &= ~RS_INFO_TRIAL;
}

void rs_moment_give(struct rs_sync_state *s, uint32_t n, uint64_t info, uintptr_t rsp)
{
	const struct rs_moment *m = &s->moment[n];
	if (RS_LIKELY(RS_INFO_STACK(info) == RS_STACK_LATER)) {
		if (RS_UNLIKELY(rs_moment_strays(m, rsp)))
			judge(m->pc, false);
		return;
	}
	if (!(info & RS_INFO_TRIAL))
		return;
	bool passed = true;
	for (unsigned i = 0; i < m->n && passed; i++)
		passed = m->word[2 * i] >= rsp && *(const uint64_t *)m->word[2 * i] == m->word[2 * i + 1];
	judge(m->pc, passed);
}

uint32_t rs_moment_stack(struct rs_thread *self, const struct rs_moment *m, bool own)
{
	struct rs_frame f = {.pc = m->pc, .rsp = m->rsp, .rbp = m->rbp, .has_rbp = true};
	struct rs_past past = {.lo = m->rsp, .size = RS_MOMENT_SPAN, .word = m->word, .own = own};
	return rs_stack_past(self, &f, &past, rs_config.stack_depth);
}
