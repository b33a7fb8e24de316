/* ring.c: writing events. See 'Order of events' in docs/architecture.md. Hot: rs_reserve and rs_commit make no system call and touch only
 * the thread's own memory, unless there is no room. Everything here may run in a signal handler. */
#include "core.h"
#include "guardlog.h"
#include "guardrace.h"
#include "guardsignal.h"
#include <errno.h>
#include <sys/mman.h>

/* lfence: the time is read after everything before it is done, above all the atomic instruction that took a lock; without it the processor may
 * read it some hundred cycles early, before the release by another thread. What follows needs no fence: a store becomes
 * visible only after rdtsc has retired. */
static inline uint64_t now(void)
{
	uint32_t lo, hi;
	__asm__ volatile("lfence\n\trdtsc" : "=a"(lo), "=d"(hi) : : "memory");
	return ((uint64_t)hi << 32 | lo) & ~0ull >> 8;
}

static void put_pad(uint64_t *w, uint64_t words, uint64_t ts)
{
	w[0] = ts << 8 | RS_EV_PAD;
	rs_put_pad(w, (words - RS_PAD_WORDS) * 8);
}

/* What is executed again was told when it was recorded. Without a call: see rs_reserve. */
static inline bool told(void)
{
	const struct rs_guard_world *w = rs_guard_view.world;
	return rs_config.guard && w && __atomic_load_n(&w->mode, __ATOMIC_ACQUIRE) == RS_GUARD_REPLAY;
}

/* Waits until Go has taken enough for `need` more words. False: nobody reads any more, and we have detached. On lane 0, handlers that run meanwhile
 * send events too: head moves on. */
static bool wait_for_room(struct rs_thread *t, unsigned lane, uint64_t need)
{
	struct rs_lane *l = &t->slot->lane[lane];
	uint32_t beat = 0, since = 0;
	__atomic_fetch_add(&rs_counters->ring_waits, 1, __ATOMIC_RELAXED);
	for (;;) {
		__atomic_store_n(&l->waiting, 1, __ATOMIC_SEQ_CST);
		uint64_t tail = __atomic_load_n(&l->tail, __ATOMIC_SEQ_CST);
		bool room = *(volatile uint64_t *)&t->head[lane] + need - tail <= t->mask[lane] + 1;
		/* A re-execution that begins here has the head of then, which Go has read past by now: there would never be room. Nothing is told there. */
		room = room || told();
		if (!room && !rs_go_gone(&beat, &since)) {
			rs_doorbell();
			rs_os_wait((uint32_t *)&l->tail, (uint32_t)tail, true, 50);
			continue;
		}
		__atomic_store_n(&l->waiting, 0, __ATOMIC_RELAXED);
		if (!room)
			rs_detach();
		return room;
	}
}

/* The way out of rs_reserve's fast path: looks at Tail, touches new pages, rings the doorbell of a ring half full, waits when it is full. */
static bool find_room(struct rs_thread *t, unsigned lane, uint64_t need)
{
	if (!rs_active || (!t->home->attached && !rs_region_attach(t)))
		return false;
	const uint64_t process = rs_process.id;
	RS_BARRIER();
	struct rs_lane *l = &t->slot->lane[lane];
	uint64_t size = t->mask[lane] + 1, end = t->head[lane] + need;
	if (RS_UNLIKELY(end > t->home->populated[t->index][lane])) {
		long r = rs_region_populate(t, lane, end);
		if (r < 0) {
			rs_give_up("out of memory for events; it is no longer watched", r);
			return false;
		}
	}
	uint64_t tail = __atomic_load_n(&l->tail, __ATOMIC_ACQUIRE);
	if (end - tail > size) {
		if (!wait_for_room(t, lane, need))
			return false;
		if (told())
			return true;
		tail = __atomic_load_n(&l->tail, __ATOMIC_ACQUIRE);
		end = t->head[lane] + need;
	}
	/* Come here again when the ring is half full, and then at every eighth. */
	uint64_t limit = tail + size / 2;
	if (end > limit) {
		rs_doorbell();
		limit = end + size / 8 < tail + size ? end + size / 8 : tail + size;
	}
	uint64_t there = t->home->populated[t->index][lane];
	t->cached_tail[lane] = tail;
	t->limit[lane] = limit < there ? limit : there;
	RS_BARRIER();
	/* A handler that came meanwhile may have forked: this is of the parent's ring then. */
	if (RS_UNLIKELY(rs_process.id != process))
		t->limit[lane] = 0;
	return true;
}

struct wanted { struct rs_thread *t; unsigned lane; uint64_t need; bool found; };

static void look_for_room(void *arg)
{
	struct wanted *w = arg;
	w->found = find_room(w->t, w->lane, w->need);
}

static bool make_room(struct rs_thread *t, unsigned lane, uint64_t need)
{
	struct wanted w = {t, lane, need, false};
	rs_vectors_kept(look_for_room, &w);
	return w.found;
}

/* On lane 0 emit_sp is the one word that says that an emission is under way, and since where: set by one store, so that a handler finds either
 * none or all of it. */
static inline __attribute__((always_inline)) uint64_t *reserve(struct rs_thread *t, unsigned lane, unsigned id, unsigned words)
{
	uint64_t *ring, head, at, left, need;
	for (;;) {
		if (lane == 0)
			t->emit_sp = (uintptr_t)__builtin_frame_address(0);
		RS_BARRIER();
		/* Now, since a handler may fork: in the child the thread has other rings then, and these are nobody's (rs_region_after_fork). */
		ring = t->ring[lane];
		RS_BARRIER();
		head = t->head[lane];
		at = head & t->mask[lane];
		left = t->mask[lane] + 1 - at;
		/* A pad takes two words at least. */
		need = words + (RS_UNLIKELY(left < words || left == words + 1) ? left : 0);
		if (RS_LIKELY(head + need <= t->limit[lane] && rs_active))
			break;
		if (lane == 0)
			t->emit_sp = 0;
		RS_BARRIER();
		/* A record of half a ring fits behind a pad in an empty one. */
		if (words >= (t->mask[lane] + 1) / 2 || words > RS_MAX_RECORD_WORDS || !make_room(t, lane, need))
			return NULL;
		/* A checkpoint may have come meanwhile. */
		if (RS_UNLIKELY(told()))
			return rs_config.races ? rs_guard_race_room(t, id, words) : NULL;
	}
	uint64_t *w = ring + at;
	__atomic_store_n(&t->slot->lane[lane].pending, 1, __ATOMIC_RELAXED);
	RS_BARRIER();
	uint64_t ts = now();
	/* Lanes never go back, whatever the machine's clocks do when a thread moves to another core. */
	if (RS_UNLIKELY(ts < t->last_ts[lane]))
		ts = t->last_ts[lane];
	t->last_ts[lane] = ts;
	if (RS_UNLIKELY(need != words)) {
		if (left > RS_MAX_RECORD_WORDS) {
			put_pad(w, RS_PAD_WORDS, ts);
			w += RS_PAD_WORDS;
			left -= RS_PAD_WORDS;
		}
		put_pad(w, left, ts);
		w = ring;
	}
	w[0] = ts << 8 | id;
	t->record[lane] = w;
	t->next[lane] = head + need;
	return w;
}

/* We interrupted an emission on lane 0, or one that was left for good. */
static __attribute__((noinline)) uint64_t *reserve_inside(struct rs_thread *t, unsigned id, unsigned words)
{
	if (!t->nested && rs_left_behind(t, t->emit_sp, true))
		return reserve(t, 0, id, words);
	uint64_t mask = rs_os_no_signals();
	uint64_t *w = t->nested ? NULL : reserve(t, 1, id, words);
	if (w) {
		t->signals = mask;
		t->nested = 1;
	} else
		rs_os_signals(mask);
	return w;
}

/* No checkpoint comes between the look at the mode and the note that an emission is under way (rs_ring_emits): a re-execution that began there would write the event once more, with its time, over
 * what lies in the ring by then. So nothing is called in between. */
RS_GUARD_ARRIVES uint64_t *rs_reserve(struct rs_thread *t, unsigned id, unsigned words)
{
	if (RS_UNLIKELY(t->accesses != NULL) && id != RS_EV_ACCESS && id != RS_EV_STACK && id != RS_EV_STACK_HOLDING && id != RS_EV_RACE && id != RS_EV_FRAME)
		rs_access_event(t, id);
	if (RS_UNLIKELY(rs_config.races | rs_config.guard)) {
		if (!told()) {
			if (rs_guard_race_untold && *rs_guard_race_untold && id != RS_EV_STACK && id != RS_EV_STACK_HOLDING && !t->emit_sp)
				rs_guard_race_tell(t);
			if (rs_config.races && id != RS_EV_RACE && id != RS_EV_FRAME && id != RS_EV_STACK && id != RS_EV_STACK_HOLDING && !t->emit_sp)
				rs_race_live_say(t, id);
		}
		if (told())
			return rs_config.races ? rs_guard_race_room(t, id, words) : NULL;
	}
	if (RS_UNLIKELY(t->emit_sp))
		return reserve_inside(t, id, words);
	return reserve(t, 0, id, words);
}

bool rs_ring_emits(const struct rs_thread *t, uintptr_t sp)
{
	enum { ABOVE = 1 << 10, BELOW = 256 << 10 };
	uintptr_t since = t->emit_sp;
	return since && since + ABOVE - sp < ABOVE + BELOW;
}

/* Not if a handler forked since `before` was read: in the child the head is another. By one instruction, as it may come at each. */
static inline void advance(uint64_t *head, uint64_t before, uint64_t next)
{
	__asm__ volatile("cmpxchg %2, %0" : "+m"(*head), "+a"(before) : "r"(next) : "memory", "cc");
}

void rs_commit_record(struct rs_thread *t)
{
	const unsigned lane = t->nested;
	struct rs_lane *l = &t->slot->lane[lane];
	const uint64_t before = t->head[lane], next = t->next[lane], shown = __atomic_load_n(&l->head, __ATOMIC_RELAXED); /* less than before: a handler left for good between the two */
	RS_BARRIER();
	if (RS_UNLIKELY(!t->emit_sp)) { /* a forked child went on in the middle of an emission of its parent's: see rs_region_after_fork */
		__atomic_store_n(&l->pending, 0, __ATOMIC_RELEASE);
		return;
	}
	if (RS_UNLIKELY(rs_config.races && rs_config.guard)) {
		rs_guard_race_commit(t);
		return;
	}
	if (RS_UNLIKELY(rs_config.races))
		rs_race_live_event(t, t->record[lane]);
	advance(&t->head[lane], before, next);
	advance(&l->head, shown, next);
	__atomic_store_n(&l->pending, 0, __ATOMIC_RELEASE);
	RS_BARRIER();
	if (RS_LIKELY(!lane))
		t->emit_sp = 0;
	else {
		t->nested = 0;
		rs_os_signals(t->signals);
	}
}

void rs_commit_record_urgent(struct rs_thread *t)
{
	rs_commit_record(t);
	rs_doorbell();
}

void rs_notice(struct rs_thread *t, unsigned what, int err, uint64_t aux)
{
	static struct { uint64_t process; uint32_t said; } once;
	if (__atomic_exchange_n(&once.process, rs_process.id, __ATOMIC_RELAXED) != rs_process.id)
		__atomic_store_n(&once.said, 0, __ATOMIC_RELAXED);
	uint32_t bit = 1u << (what & 31);
	if (!(__atomic_fetch_or(&once.said, bit, __ATOMIC_RELAXED) & bit))
		RS_EMIT(t, NOTICE, notice, (uint8_t)what, (uint32_t)err, aux);
}
