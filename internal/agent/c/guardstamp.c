/* guardstamp.c: where threads were: stamps of waits, marks of how far the others had come then, the cut at a crash or at a difference. See guardtry.h. General registers only.
 *
 * Of a recording, but for the difference: nobody waits here. State lies in the arena; in a recording only its own thread writes a thread's line. */
#include "guardstep.h"
#include "guardtry_core.h"
#include "guardyield.h"
#include <signal.h>

enum { FEW = 8 /* threads: where there are more they are not looked at */, BRIEF = 1 << 14 /* ticks: a wait that was none */, FAULT = 1 << 14 /* ticks from a fault to its handler */, SHORT_NS = 50000 /* of the processor's time: most of what is between two events takes less */ };

uint32_t rs_guard_try_place(const struct rs_guard_log *t)
{
	uint32_t at = LOAD(t->at), run = LOAD(t->run);
	if (run)
		return at << 10 | run << 1;
	if (at == 0)
		return 0;
	const struct rs_guard_event *e = &t->event[at - 1];
	return (at - 1) << 10 | (rs_guard_more(e) + 1) << 1;
}
_Static_assert(RS_GUARD_RUN + 1 < 1 << 9 && RS_GUARD_EVENTS <= 1 << 22, "a place fits");

/* 1: in its next act, or about to be. */
static uint32_t within(const struct rs_guard_log *t) { return LOAD(t->state) != RS_GUARD_RUNS || LOAD(t->inner); }

static void mark_others(struct stamp *p, uint32_t me)
{
	const struct rs_guard_world *w = rs_guard_world();
	uint32_t logs = w->logs < LOGS ? w->logs : LOGS, first = logs > 1 && LOAD(rs_guard_tries->marks) < MARKS ? __atomic_fetch_add(&rs_guard_tries->marks, logs, __ATOMIC_RELAXED) : MARKS;
	if (first + logs > MARKS)
		return;
	struct mark *m = rs_guard_tries->mark + first;
	for (uint32_t i = 0; i < logs; i++) {
		uint32_t in = within(rs_guard_log(i));
		m[i].done = i == me ? 0 : rs_guard_try_place(rs_guard_log(i)) | in;
		m[i].looks = rs_guard_yield_behind(rs_guard_log(i));
	}
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (uint32_t i = 0; i < logs; i++) {
		uint32_t in = within(rs_guard_log(i));
		m[i].begun = i == me ? 0 : rs_guard_try_place(rs_guard_log(i)) | in;
	}
	p->first = first, p->logs = logs;
}

static void stamp(struct rs_guard_log *t, bool over, uint32_t event)
{
	struct line *l = rs_guard_tries ? &rs_guard_tries->line[t->index] : NULL;
	if (!l || l->stamps >= STAMPS || rs_guard_is_lost(rs_guard_world()))
		return;
	if (!l->stamp)
		l->stamp = rs_guard_tries->stamp + (size_t)t->index * STAMPS;
	struct stamp *p = &l->stamp[l->stamps];
	/* The time is before the marks: what another thread does behind them is later than it. */
	*p = (struct stamp){.ticks = ticks(), .event = event, .over = over};
	/* Of more threads each wait would look at as many lines that others write. */
	if (rs_guard_world()->logs <= FEW && (!over || !l->stamps || p->ticks - p[-1].ticks > BRIEF))
		mark_others(p, t->index);
	if (p->logs && over)
		l->cpu = rs_os_cpu_ns(t->tid);
	STORE(l->stamps, l->stamps + 1);
}

void rs_guard_try_wait(struct rs_guard_log *t, bool over)
{
	stamp(t, over, t->at - over);
	if (rs_guard_tries)
		rs_guard_tries->line[t->index].slept = false;
}

void rs_guard_try_sleep(struct rs_guard_log *t, bool over)
{
	struct line *l = rs_guard_tries ? &rs_guard_tries->line[t->index] : NULL;
	/* Again before the same event: the first beginning and the last end count. */
	if (l && l->stamps && l->stamp[l->stamps - 1].over && l->stamp[l->stamps - 1].event == t->at && l->slept) {
		if (!over)
			return;
		l->stamps--;
	}
	stamp(t, over, t->at);
	if (l)
		l->slept = over;
}

static void cut(struct cut *c, const struct rs_guard_log *who)
{
	c->who = NOBODY;
	/* Of those that come later: they were nowhere. */
	for (uint32_t i = 0; i < LOGS; i++)
		c->other[i] = 0, c->run[i] = 0, c->inside[i] = c->born[i] = 0;
	for (uint32_t i = 0; i < rs_guard_world()->logs; i++) {
		const struct rs_guard_log *t = rs_guard_log(i);
		c->born[i] = LOAD(t->state) != RS_GUARD_UNBORN;
		c->inside[i] = (uint8_t)within(t);
		uint32_t at = rs_guard_try_place(t);
		c->other[i] = events_at(at);
		c->run[i] = (uint16_t)(at >> 1 & 0x1ff);
	}
	c->at = who->at;
	STORE(c->who, who->index);
}

/* When it was that the fault came of which a handler hears now. The kernel lets others run before it calls the handler, and hardly ever in the few instructions between a wait's end and a fault. */
static uint64_t fault_ticks(const struct rs_guard_log *t)
{
	const struct line *l = &rs_guard_tries->line[t->index];
	const struct stamp *last = l->stamps ? &l->stamp[l->stamps - 1] : NULL;
	uint64_t now = ticks() - FAULT;
	bool behind_it = last && last->over && last->logs && last->event + 1 == t->at;
	return last && (now < last->ticks || (behind_it && rs_os_cpu_ns(t->tid) - l->cpu < SHORT_NS)) ? last->ticks : now;
}

/* What others have waited for until after that came behind it. */
static void cut_back(struct cut *c, uint64_t than)
{
	for (uint32_t i = 0; i < rs_guard_world()->logs; i++) {
		const struct line *l = &rs_guard_tries->line[i];
		uint32_t n = LOAD(l->stamps);
		while (n && l->stamp[n - 1].ticks > than)
			n--;
		if (i == c->who || n == LOAD(l->stamps) || l->stamp[n].event >= c->other[i] + c->inside[i])
			continue;
		c->other[i] = l->stamp[n].event;
		c->run[i] = 0;
		c->inside[i] = 1;
	}
}

bool rs_guard_try_crash(struct rs_guard_log *t, int sig, uint64_t pc)
{
	struct tries *s = rs_guard_tries;
	if (!s || !t)
		return false;
	/* What the program called goes other ways in a recording than when that is executed again. */
	if (rs_guard_step_ours(pc))
		pc = 0;
	if (rs_guard_mode() == RS_GUARD_REPLAY) {
		if (t->index != s->crasher || (uint32_t)sig != s->sig || pc != s->pc || t->at != s->crash.at)
			return false;
		STORE(s->crossed, 1);
		return true;
	}
	uint32_t nobody = NOBODY;
	if (!__atomic_compare_exchange_n(&s->crasher, &nobody, t->index, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
		return false;
	s->sig = (uint32_t)sig;
	s->pc = pc;
	cut(&s->crash, t);
	s->ticks = fault_ticks(t);
	cut_back(&s->crash, s->ticks);
	return true;
}

void rs_guard_try_aborts(const struct rs_guard_log *t)
{
	if (rs_guard_tries && rs_guard_tries->crasher == t->index && rs_guard_tries->sig == SIGABRT && t->at == rs_guard_tries->crash.at)
		STORE(rs_guard_tries->crossed, 1);
}

bool rs_guard_try_other_crash(const struct rs_guard_log *t)
{
	uint32_t who = rs_guard_tries ? LOAD(rs_guard_tries->crasher) : NOBODY;
	return who != NOBODY && t && who != t->index;
}

bool rs_guard_try_crashed(void) { return rs_guard_tries && LOAD(rs_guard_tries->crossed); }

void rs_guard_try_diverged(const struct rs_guard_log *t)
{
	if (rs_guard_tries && t)
		cut(&rs_guard_tries->differs, t);
}
