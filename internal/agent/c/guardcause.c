/* guardcause.c: who wrote the wrong bytes of an evidence, or the pointer that a crash used: the epoch is ended and executed again with these bytes watched. See evidence.h, guardwatch.h. */
#include "core.h"
#include "crash.h"
#include "evidence.h"
#include "guardepoch.h"
#include "guardstep.h"
#include "guardwatch.h"
#include "pointer.h"

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

static void tell(struct rs_thread *t, uint32_t number, unsigned used, const struct rs_guard_hit *h)
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
	rs_put_guard_writer(words, number, kernel ? RS_WRITER_KERNEL : RS_WRITER_WATCHPOINT, (uint8_t)used, h->thread, h->address, kernel ? 0 : frame[0], h->before, h->after, stack);
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
			tell(t, e->number, RS_USED_POINTER, &u->hit[lo % RS_GUARD_HITS]);
}

/* Words of stacks that nobody uses may differ. */
static bool same(long verdict) { return verdict == RS_GUARD_IDENTICAL || verdict == RS_GUARD_STACK; }

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
	if (!t || rs_guard_watch(w, n) != 0 || !same(rs_guard_epoch_again()))
		return;
	const struct rs_guard_watched *of = rs_guard_watch_answered() ? rs_guard_watched() : NULL;
	for (uint32_t i = 0; of && i < of->units; i++) {
		const struct rs_guard_unit *u = &of->unit[i];
		/* Another thread may have asked meanwhile: then it is of other bytes. */
		if (u->state == RS_GUARD_UNIT_WATCHED && u->watch < n && u->address - w[u->watch].address < w[u->watch].bytes)
			tell_unit(t, &e[u->watch], u);
	}
}

/* What a crash's pointer was read as, and where from; in the arena. */
static struct source { bool known; struct rs_pointer_search of; } *source;

/* On the coordinator: the steps to the crash are there, next is a re-execution with the place watched. */
static bool stepped(void)
{
	bool whole = rs_pointer_source(&source->of);
	struct rs_guard_watch w = {source->of.p.location, source->of.p.bytes};
	source->known = source->of.found && rs_guard_watch_next(&w, 1) == 0;
	return whole;
}

/* The last writes to where it was read from, up to the one that wrote what was read. */
static void cause(struct rs_thread *t, int sig, const greg_t *g)
{
	enum { STEPS = 4 };
	if (rs_guard_mode() == RS_GUARD_RECORD)
		rs_os_clear(source, sizeof *source);
	if (rs_guard_step(t, sig, g) != 0 || !same(rs_guard_epoch_again()) || !source->known)
		return;
	const struct rs_guard_watched *of = rs_guard_watch_answered() ? rs_guard_watched() : NULL;
	const struct rs_guard_unit *u = of && of->units == 1 ? &of->unit[0] : NULL;
	if (!u || u->address != source->of.p.location || u->state != RS_GUARD_UNIT_WATCHED || u->lost)
		return;
	/* It may have been overwritten since. */
	uint64_t least = u->count > RS_GUARD_HITS ? u->count - RS_GUARD_HITS : 0, hi = u->count;
	while (hi > least && u->hit[(hi - 1) % RS_GUARD_HITS].after != source->of.p.value)
		hi--;
	for (uint64_t k = hi > least + STEPS ? hi - STEPS : least; k < hi; k++) {
		const struct rs_guard_hit *h = &u->hit[k % RS_GUARD_HITS];
		if (h->order && !ours(h))
			tell(t, 0, source->of.p.used, h);
	}
}

bool rs_guard_cause_begin(void)
{
	if (!(source = rs_guard_map(sizeof *source)))
		return false;
	rs_evidence_found = found, rs_crash_cause = cause, rs_guard_stepped = stepped;
	return true;
}
