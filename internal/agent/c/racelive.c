/* racelive.c: the detector in a program that runs with rs_config.races: events and accesses go to it where they would be sent, and what it finds is sent as `race`. */
#include "core.h"
#include "race.h"
#include "access.h"
#include "share.h"

enum { VALUE = 16 };

/* The race that is about to be noted: what is there to be known about it now alone. */
static bool look(const struct rs_race_found *found)
{
	struct rs_thread *t = rs_thread_tls;
	uint64_t addr = found->addr > found->addr2 ? found->addr : found->addr2, value[2] = {0, 0};
	unsigned known = found->size < VALUE ? (unsigned)found->size : VALUE;
	struct rs_place in = {0, 0};
	struct rs_frame f;
	if (found->rule != RS_RACE_RULE_USE_AFTER_FREE && rs_library_cache(found))
		return false;
	if (!t || t->number != found->by || t->emit_sp || found->kind & RS_RACE_OBJECT)
		return true;
	if (!rs_peek(value, found->addr, known)) /* the access may be one that faults */
		known = 0;
	if (rs_config.stack_depth && found->rule != RS_RACE_RULE_USE_AFTER_FREE && rs_frames_own(t, addr)) {
		if (rs_full_where(t, &f))
			in = rs_frames_find(t, f, addr);
	} else if (rs_config.stack_depth)
		in = rs_frames_creator(t, addr);
	if (known || in.pc)
		RS_EMIT(t, FRAME, frame, (uint8_t)known, found->addr, found->pc, value[0], value[1], addr, in.pc, in.cfa);
	return true;
}

void rs_race_live_begin(void)
{
	const struct rs_race_config config = {.max_pages = rs_config.race_pages, .look = look, .due = rs_signal_due, .alone = rs_config.races == RS_RACES_SHARED ? rs_share_alone : NULL};
	if (rs_config.races && !rs_race_begin(&config))
		rs_give_up("out of memory for looking for races; it is no longer watched", 0);
}

static struct rs_race_thread *thread_of(struct rs_thread *t)
{
	struct rs_race_thread *r = t->race;
	if (r && r->number == t->number && RS_UNLIKELY(rs_race_inside(r)) && rs_left_behind(t, rs_race_inside(r), true))
		rs_race_left(r);
	return r && r->number == t->number ? r : NULL;
}

struct rs_race_thread *rs_race_live_known(struct rs_thread *t)
{
	struct rs_race_thread *r = rs_race_thread(t->number);
	if (r)
		rs_race_stack(r, t->stack_lo, t->stack_hi, &t->frames, rs_own_told);
	return t->race = r;
}

struct rs_race_thread *rs_race_live_thread(struct rs_thread *t)
{
	struct rs_race_thread *r = thread_of(t);
	return RS_UNLIKELY(!r) ? rs_race_live_known(t) : r;
}

void rs_race_live_access(struct rs_thread *t, uintptr_t addr, uint64_t size, unsigned kind, uintptr_t pc, uint32_t stack)
{
	struct rs_race_thread *r = rs_race_live_thread(t);
	if (r)
		rs_race_access(r, addr, size, kind, pc, stack);
}

static bool releases(uint8_t event)
{
	switch (event) {
	case RS_EV_RELEASE:
	case RS_EV_BARRIER_ARRIVE:
	case RS_EV_SEM_POST:
	case RS_EV_COND_SIGNAL:
	case RS_EV_CHANNEL_RELEASE:
	case RS_EV_THREAD_CREATE:
		return true;
	}
	return false;
}

void rs_race_live_event(struct rs_thread *t, const uint64_t *w)
{
	if ((uint8_t)w[0] == RS_EV_FRAME) /* it is sent from inside the detector */
		return;
	bool known = thread_of(t);
	if (rs_share_on && releases((uint8_t)w[0]))
		rs_share_release(t->number);
	if (rs_share_on && (uint8_t)w[0] == RS_EV_FREE)
		rs_share_freed(rs_get_free_addr(w));
	rs_race_event(t->number, w);
	if (!known)
		rs_race_live_known(t);
}

void rs_race_live_usable(struct rs_thread *t, uintptr_t addr, uint64_t size)
{
	struct rs_race_thread *r = rs_race_live_thread(t);
	if (r)
		rs_race_usable(r, addr, size);
}

/* Sends what was decided, before another event of t. The stacks that it names have been sent. */
void rs_race_live_say(struct rs_thread *t, unsigned before)
{
	struct rs_race_found f;
	if (before == RS_EV_PROCESS_END)
		rs_race_end();
	struct rs_race_counts n;
	rs_race_count(&n);
	__atomic_store_n(&rs_counters->race_amnesties, n.amnesties, __ATOMIC_RELAXED);
	__atomic_store_n(&rs_counters->race_evicted, n.evicted_pages, __ATOMIC_RELAXED);
	__atomic_store_n(&rs_counters->race_unsaid, n.unsaid, __ATOMIC_RELAXED);
	while (rs_race_next(&f))
		RS_EMIT(t, RACE, race, f.rule, f.kind, f.kind2, f.by, f.addr, f.size, f.pc, f.stack, f.by2, f.addr2, f.size2, f.pc2, f.stack2, f.count);
}
