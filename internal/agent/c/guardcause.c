/* guardcause.c: who wrote the wrong bytes of an evidence, or the pointer that a crash used: the epoch is ended and executed again with these bytes watched. See evidence.h, guardwatch.h. */
#include "alloc.h"
#include "core.h"
#include "crash.h"
#include "crashtext.h"
#include "evidence.h"
#include "guardepoch.h"
#include "guardrace.h"
#include "guardstep.h"
#include "guardtry.h"
#include "guardwatch.h"
#include "pointer.h"
#include <errno.h>

extern const char __ehdr_start[] RS_HIDDEN, _end[] RS_HIDDEN;
enum { BYTES = 8, LAST = 2 /* writes told of each unit */ };

/* The first run of wrong bytes, as far as they are known. */
static struct rs_guard_watch wrong(const struct rs_evidence *e)
{
	struct rs_guard_watch w = {e->bad, e->shown ? 1 : BYTES}; /* none are shown of a last word: any byte of it */
	while (w.bytes < e->shown && w.bytes < BYTES && e->was[w.bytes] != e->is[w.bytes])
		w.bytes++;
	return w;
}

static void tell(struct rs_thread *t, uint32_t number, unsigned used, unsigned step, const struct rs_guard_hit *h)
{
	bool kernel = h->call >= 0;
	uint64_t frame[RS_GUARD_HIT_FRAMES];
	/* A call wrote its return address: it is in the caller. */
	uint32_t from = !kernel && h->frames > 1 && h->gregs[REG_RSP] == h->address && h->after == h->frame[1];
	for (uint32_t i = from; i < h->frames; i++)
		frame[i - from] = h->frame[i];
	frame[0]--; /* in what wrote: it is taken as where the thread is */
	uint32_t stack = rs_stack_of(t, frame, h->frames - from);
	uint64_t *words = rs_reserve(t, RS_EV_GUARD_WRITER, RS_GUARD_WRITER_WORDS);
	if (!words)
		return;
	/* Behind the instruction: the byte before is its last. */
	rs_put_guard_writer(words, number, kernel ? RS_WRITER_KERNEL : RS_WRITER_WATCHPOINT, (uint8_t)used, (uint8_t)step, h->thread, h->address, kernel ? 0 : frame[0], h->before, h->after, stack);
	rs_commit(t);
}

/* The guard's own bytes are written by us: when a block is handed out or given up. */
static bool ours(const struct rs_guard_hit *h) { return h->call < 0 && h->pc - (uintptr_t)__ehdr_start < (uintptr_t)_end - (uintptr_t)__ehdr_start; }

/* The last writes since the bytes were guarded; what wrote before that may have had every right to. */
static void tell_unit(struct rs_thread *t, const struct rs_evidence *e, const struct rs_guard_unit *u)
{
	uint64_t least = u->count > RS_GUARD_HITS ? u->count - RS_GUARD_HITS : 0, hi = u->count;
	while (hi > least && ours(&u->hit[(hi - 1) % RS_GUARD_HITS]))
		hi--;
	uint64_t lo = hi;
	while (lo > least && hi - lo < LAST && !ours(&u->hit[(lo - 1) % RS_GUARD_HITS]))
		lo--;
	for (; lo < hi; lo++)
		if (u->hit[lo % RS_GUARD_HITS].order)
			tell(t, e->number, RS_USED_POINTER, 0, &u->hit[lo % RS_GUARD_HITS]);
}

/* Words of stacks that nobody uses may differ. */
static bool same(long verdict) { return verdict == RS_GUARD_IDENTICAL || verdict == RS_GUARD_STACK; }

/* There was an excursion for nothing, or none: why, if it is not 0. */
static void tell_refusal(struct rs_thread *t, long error)
{
	if (error < 0)
		rs_notice(t, RS_NOTICE_NO_WATCH, (int)-error, 0);
}

/* sent: the call behind which the log ends, of which it has nothing; 0: it ends here. */
static long again(unsigned sent) { return sent ? rs_guard_epoch_again_before(sent) : rs_guard_epoch_again(); }

/* All of one moment in one excursion: the next epoch knows nothing of what was written in this one. */
static void found(const struct rs_evidence *e, unsigned n)
{
	enum { AT_ONCE = RS_GUARD_UNITS / 4 /* units that eight bytes are at most, at any address */ };
	struct rs_guard_watch w[AT_ONCE];
	struct rs_thread *t = rs_self();
	if (n > AT_ONCE)
		n = AT_ONCE;
	for (unsigned i = 0; i < n; i++)
		w[i] = wrong(&e[i]);
	if (!t || rs_guard_watch(w, n) != 0 || !same(again(rs_crash_sent())))
		return;
	tell_refusal(t, rs_guard_watch_refusal());
	const struct rs_guard_watched *of = rs_guard_watch_answered() ? rs_guard_watched() : NULL;
	for (uint32_t i = 0; of && i < of->units; i++) {
		const struct rs_guard_unit *u = &of->unit[i];
		/* Another thread may have asked meanwhile: then it is of other bytes. */
		if (u->state == RS_GUARD_UNIT_WATCHED && u->watch < n && u->address - w[u->watch].address < w[u->watch].bytes)
			tell_unit(t, &e[u->watch], u);
	}
}

/* What a crash's pointer was read as, and where from; then the same of what was written there, and so on. In the arena. */
enum { CAUSES = 4, STEPS = 4 /* writes told of each */ };
static struct source {
	bool asks;
	uint32_t at;               /* the one that is being looked into; those before are known */
	struct cause {
		struct rs_pointer_search of;
		struct rs_guard_unit unit;
		uint64_t last;     /* hits up to the write of what was read; 0: it was not seen */
	} cause[CAUSES];
} *source;

/* On the coordinator: there are steps; next is a re-execution with the place watched that they lead to. */
static bool stepped(void)
{
	struct cause *c = &source->cause[source->at];
	bool whole = rs_pointer_source(&c->of);
	struct rs_guard_watch w = {c->of.p.location, c->of.p.bytes};
	if (c->of.found)
		rs_guard_watch_next(&w, 1);
	return whole;
}

static uint64_t first_kept(const struct rs_guard_unit *u) { return u->count > RS_GUARD_HITS ? u->count - RS_GUARD_HITS : 0; }

/* On the coordinator: who wrote there is known; next are steps to that. */
static bool told(const struct rs_guard_watched *of)
{
	struct cause *c = &source->cause[source->at];
	const struct rs_guard_unit *u = &of->unit[0];
	if (!source->asks || source->at == CAUSES || of->units != 1 || u->address != c->of.p.location || u->state != RS_GUARD_UNIT_WATCHED || u->lost)
		return false;
	c->unit = *u;
	/* It may have been overwritten since. */
	for (c->last = u->count; c->last > first_kept(u) && u->hit[(c->last - 1) % RS_GUARD_HITS].after != c->of.p.value;)
		c->last--;
	if (c->last == first_kept(u))
		c->last = 0;
	const struct rs_guard_hit *h = c->last ? &u->hit[(c->last - 1) % RS_GUARD_HITS] : NULL;
	source->at++;
	uint64_t pc;
	if (source->at == CAUSES || !h || h->call >= 0 || ours(h) || !rs_pointer_store(&c[1].of, h->gregs, u->address, u->bytes, h->after, &pc))
		return false;
	return rs_guard_step_write(h->tid, u->address, h->gregs, pc, h->word, h->words) == 0;
}

/* The heap block that it was read from; or that nobody wrote where it was. */
static void tell_block(struct rs_thread *t, unsigned step, const struct cause *c)
{
	const struct rs_pointer *p = &c->of.p;
	struct rs_evidence e;
	if (!rs_evidence_block(t, p->location, &e)) {
		if (c->unit.count == 0)
			RS_EMIT(t, CRASH_SOURCE, crash_source, RS_BLOCK_STATE_NONE, (uint8_t)p->used, (uint8_t)step, 1, 0, 0, p->location, p->value, 0, 0, 0, 0);
		return;
	}
	/* Only what freed blocks are filled with was certainly read after the free. */
	uint64_t unread = p->bytes < 8 ? ~0ull << 8 * p->bytes : 0, fill = RS_FREED_WORD >> 8 * (p->location & 7), is = 0;
	bool filled = p->location + p->bytes <= e.block + e.size && !((p->value ^ fill) & ~unread);
	rs_os_copy(&is, (const void *)p->location, p->bytes);
	unsigned state = e.freed ? (filled ? RS_BLOCK_STATE_FILLED : RS_BLOCK_STATE_FREED) : filled && !((is ^ fill) & ~unread) ? RS_BLOCK_STATE_STALE : RS_BLOCK_STATE_OUT;
	RS_EMIT(t, CRASH_SOURCE, crash_source, (uint8_t)state, (uint8_t)p->used, (uint8_t)step, c->unit.count == 0, e.alloc_thread, e.free_thread, p->location, p->value & ~unread, e.block, e.size, e.alloc_stack, e.free_stack);
}

/* answer: of the question for a re-execution, if it was asked; else of those that there were. */
static void tell_again(struct rs_thread *t, bool asked, long answer)
{
	const struct rs_guard_came *c = rs_guard_came();
	bool none = answer >= 0 && (!c->crash || !c->made);
	if (none ? !asked : answer == -ENOSYS)
		return;
	unsigned state = none ? RS_AGAIN_ENDED : answer == -EBUSY ? RS_AGAIN_BUSY : answer < 0 ? RS_AGAIN_LOST : c->tries ? RS_AGAIN_REPRODUCED : RS_AGAIN_OTHER;
	unsigned tries = none || answer < 0 ? 0 : c->tries;
	RS_EMIT(t, CRASH_AGAIN, crash_again, (uint8_t)state, none || answer < 0 ? 0 : (uint8_t)c->why, state == RS_AGAIN_LOST ? (uint8_t)rs_guard_world()->last.lost : 0, (uint8_t)tries, none || answer < 0 ? 0 : c->made);
	if (!none && answer >= 0)
		__atomic_fetch_add(&rs_counters->guard_tries[tries & 15], 1, __ATOMIC_RELAXED);
}

/* The call from which the program did not come back, which aborted, and what the walk knows of the registers there. */
static bool aborts_at(struct rs_thread *t, const greg_t *g, greg_t *at)
{
	enum { FRAMES = 32 };
	struct rs_frame f = {.pc = (uintptr_t)g[REG_RIP], .rsp = (uintptr_t)g[REG_RSP], .rbp = (uintptr_t)g[REG_RBP], .rbx = (uintptr_t)g[REG_RBX], .has_rbp = true, .has_rbx = true};
	uint64_t pcs[2], call;
	unsigned i = 0;
	for (; i < FRAMES && rs_walk(t, &f, i == 0, pcs, 2, NULL) == 2 && rs_crashtext_aborts(t, f.pc - 1); i++)
		;
	if (i == FRAMES || rs_crashtext_aborts(t, f.pc - 1) || !(call = rs_guard_step_call_before(t, f.pc, true)))
		return false;
	rs_os_copy(at, g, sizeof(gregset_t));
	at[REG_RIP] = (greg_t)call, at[REG_RSP] = (greg_t)f.rsp, at[REG_RBP] = (greg_t)f.rbp, at[REG_RBX] = (greg_t)f.rbx;
	return true;
}

/* Likewise of a crash in a function of ours that stands for libc's: the program's call of it. */
static bool called_at(struct rs_thread *t, const greg_t *g, greg_t *at)
{
	struct rs_frame f = {.pc = (uintptr_t)g[REG_RIP], .rsp = (uintptr_t)g[REG_RSP], .rbp = (uintptr_t)g[REG_RBP], .rbx = (uintptr_t)g[REG_RBX], .has_rbp = true, .has_rbx = true};
	uint64_t pcs[2], call;
	if (!rs_guard_step_ours((uint64_t)g[REG_RIP]) || rs_walk(t, &f, true, pcs, 2, NULL) != 2 || rs_guard_step_ours(f.pc) || !(call = rs_guard_step_call_before(t, f.pc, true)))
		return false;
	rs_os_copy(at, g, sizeof(gregset_t));
	at[REG_RIP] = (greg_t)call, at[REG_RSP] = (greg_t)f.rsp, at[REG_RBP] = (greg_t)f.rbp, at[REG_RBX] = (greg_t)f.rbx;
	return true;
}

/* The last writes to where it was read from, up to the one that wrote what was read. */
static bool cause(struct rs_thread *t, int sig, const greg_t *g, bool ask)
{
	if (!ask) {
		tell_again(t, false, 0);
		return false;
	}
	gregset_t at;
	uint64_t fault = 0;
	/* cppcheck-suppress uninitvar ; it writes it */
	bool called = (sig == SIGSEGV || sig == SIGBUS) && called_at(t, g, at);
	if (called) {
		fault = (uint64_t)g[REG_CR2];
		g = at;
	} else if (sig == SIGABRT) {
		/* cppcheck-suppress uninitvar ; it writes it */
		/* What the heap found broken is told as misuse of it, and no condition of the program's led there. */
		if (!g || rs_crashtext_of_heap() || !aborts_at(t, g, at)) { /* for what all accesses tell */
			if (rs_guard_race_wanted())
				rs_guard_epoch_again();
			return false;
		}
		g = at;
		rs_guard_try_crash(rs_guard_self(), sig, (uint64_t)at[REG_RIP]);
	}
	if (rs_guard_mode() == RS_GUARD_RECORD) {
		rs_os_clear(source, sizeof *source);
		source->asks = true;
	}
	long r = rs_guard_step(t, sig, g, called ? &fault : NULL);
	if (r != 0) {
		tell_refusal(t, r == -ESRCH ? 0 : r);
		return false;
	}
	long answer = again(sig == SIGABRT ? SYS_tgkill : 0);
	tell_refusal(t, rs_guard_watch_refusal());
	source->asks = false;
	tell_again(t, true, answer);
	if (answer < 0)
		return false;
	for (uint32_t i = 0; i < source->at; i++) {
		const struct cause *c = &source->cause[i];
		uint64_t k = first_kept(&c->unit);
		tell_block(t, i, c);
		/* What we filled a block with is not what anybody wrote there before. */
		if (c->last && ours(&c->unit.hit[(c->last - 1) % RS_GUARD_HITS]))
			continue;
		for (k = c->last > k + STEPS ? c->last - STEPS : k; k < c->last; k++) {
			const struct rs_guard_hit *h = &c->unit.hit[k % RS_GUARD_HITS];
			if (h->order && !ours(h))
				tell(t, 0, c->of.p.used, i, h);
		}
	}
	return source->at != 0;
}

bool rs_guard_cause_begin(void)
{
	if (!(source = rs_guard_map(RS_ARENA_OWN, sizeof *source)))
		return false;
	rs_evidence_found = found, rs_crash_cause = cause, rs_guard_stepped = stepped, rs_guard_watch_told = told;
	return true;
}
