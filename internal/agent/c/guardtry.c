/* guardtry.c: waits, the cut at a crash, and delays of a re-execution, by what guardstamp.c noted of its recording. See guardtry.h. General registers only.
 *
 * What is waited for here did come before in the recording, or is a guess (delays); a thread of a re-execution that goes another way may never do it. So every wait ends when nobody moves any more, and none of them is a difference. */
#include "guardtry_core.h"
#include "guardsync.h"
#include "guardyield.h"
#include <errno.h>
#include <linux/futex.h>

enum { SLICE_NS = 1000000, QUICK_NS = 100000 /* the first few */, QUICK = 8, IDLE_MS = 200 /* nobody runs, and nobody has moved */, MOST_MS = 3000, SLEPT_MS = 1000 /* the last of an epoch, in which waits take as long as they took */, LATE_MS = 50, ACT_MS = 20 /* what it is somebody's turn to do takes less, but if it is a lock that another has */, PATIENCE_MS = 10000 /* an excursion */, LOOKING_MS = 20000 /* the same, of which a re-execution came out, and more look into that */, EVERY_MS = 1000 /* the same, of an epoch in which nothing was found */ };
enum { OTHERWISE = 3 /* re-executions, where events differ and nothing crashed: more have not helped */, NEAR = 32 /* events around the difference at which there are delays by chance */, SPIN = 1 << 19 /* ticks */ };
enum { SHORT_AGAIN_NS = 200000 /* of the processor's time, behind a rollback, where each page that is touched has a fault: most of what is between two events takes less */, STEP_MS = 10, FAR_NS = 20000000, LOOKS = 2 /* yields of another thread's */ };

/* What a try does. free: the crash's thread does not wait for the others behind its last event. meet: the others wait, `back` events before the cut, until it is there: what they do next races with what it does next. slept: waits take as long as they took.
 * hold: the others wait so many events before where they were at the difference until the thread that differed is past it. late: that one waits, `back` events before it, until they are past where they were. chance: delays as they come, around the difference; of memory, behind waits. */
static const struct way { bool free, meet, slept, hold, late, chance, far, near; uint8_t back; } ways[RS_GUARD_TRIES] = {
	{0},
	{.free = true, .meet = true, .hold = true, .far = true, .back = 1},
	{.free = true, .slept = true, .near = true},
	{.late = true, .slept = true, .far = true},
	{.free = true, .meet = true, .chance = true, .back = 1},
	{.free = true, .meet = true, .hold = true, .far = true, .back = 2},
	{.slept = true, .chance = true},
	{.free = true, .meet = true, .chance = true, .back = 1},
};

struct tries *rs_guard_tries;

static struct timespec now(void)
{
	struct timespec ts = {0};
	RS_SYS2(SYS_clock_gettime, CLOCK_MONOTONIC, &ts);
	return ts;
}

static uint64_t now_ms(void)
{
	struct timespec ts = now();
	return (uint64_t)ts.tv_sec * 1000u + (uint64_t)ts.tv_nsec / 1000000u;
}

const struct rs_guard_came *rs_guard_came(void)
{
	static const struct rs_guard_came none;
	return rs_guard_tries ? &rs_guard_tries->came : &none;
}

/* --- re-execution: waiting for others -------------------------------------------------------------------------------------------------------- */

static bool stands(const struct rs_guard_log *t)
{
	uint32_t state = LOAD(t->state);
	return !t->tid || state == RS_GUARD_ENDED || state == RS_GUARD_KEPT;
}

/* How far all are; *run: somebody does, or has not looked in that round. */
static uint64_t progress(const struct rs_guard_log *but, uint32_t round, bool *run)
{
	uint64_t sum = 0;
	*run = false;
	for (uint32_t i = 0; i < rs_guard_world()->logs; i++) {
		const struct rs_guard_log *t = rs_guard_log(i);
		sum += rs_guard_try_place(t) + LOAD(rs_guard_tries->line[i].at);
		/* Who was woken, and is not given a processor, is no different from who runs. */
		uint32_t state = LOAD(t->state);
		*run = *run || (t->tid && t != but && (state == RS_GUARD_RUNS || (state == RS_GUARD_WAITS && (int32_t)(LOAD(t->looked) - round) < 0)));
	}
	return sum;
}

static void woken(void)
{
	__atomic_fetch_add(&rs_guard_tries->moved, 1, __ATOMIC_SEQ_CST);
	RS_SYS3(SYS_futex, &rs_guard_tries->moved, FUTEX_WAKE_PRIVATE, INT32_MAX);
}

static void slice(struct rs_guard_log *t, uint32_t seen, bool quick)
{
	struct timespec ts = now();
	ts.tv_nsec += quick ? QUICK_NS : SLICE_NS;
	if (ts.tv_nsec >= 1000000000)
		ts.tv_nsec -= 1000000000, ts.tv_sec++;
	rs_guard_sleep_in_try(t, &rs_guard_tries->moved, seen, &ts);
}

/* Until it holds, nobody moves any more, or the re-execution ends. Time in which this thread itself was not let run counts as little. */
static void wait_for(struct rs_guard_log *t, bool (*holds)(const struct rs_guard_log *t, uint64_t of), uint64_t of, uint64_t most_ms)
{
	uint64_t last = now_ms(), still = 0, all = 0, sum = 0;
	uint32_t round = LOAD(rs_guard_world()->round);
	bool asked = false;
	for (unsigned slices = 0;; slices++) {
		uint32_t seen = LOAD(rs_guard_tries->moved);
		bool run;
		if (holds(t, of) || rs_guard_mode() != RS_GUARD_REPLAY || LOAD(rs_guard_world()->ending))
			return;
		uint64_t is = progress(t, round, &run), at = now_ms(), times = 1 + rs_guard_world()->slower, passed = at - last < STEP_MS ? at - last : STEP_MS;
		last = at;
		all += passed, still += passed;
		if (is != sum)
			sum = is, still = 0, asked = false;
		if (all / times > most_ms || still > (run ? MOST_MS * times : IDLE_MS)) {
			if (!run && still > IDLE_MS)
				__atomic_fetch_add(&rs_counters->guard_idle, 1, __ATOMIC_RELAXED);
			return;
		}
		if (!asked && still > IDLE_MS / 2) {
			round = __atomic_add_fetch(&rs_guard_world()->round, 1, __ATOMIC_SEQ_CST);
			rs_guard_kick();
			asked = true;
		}
		slice(t, seen, slices < QUICK);
	}
}

/* --- waits in the kernel ------------------------------------------------------------------------------------------------------------------------ */

/* Has a wait behind it, and may not have done what the program does then: it is nowhere since, and has hardly had the processor. */
static bool is_fresh(uint32_t i)
{
	struct line *l = &rs_guard_tries->line[i];
	const struct rs_guard_log *o = rs_guard_log(i);
	if (!LOAD(l->fresh))
		return false;
	if (LOAD(o->state) == RS_GUARD_RUNS && rs_os_cpu_ns(o->tid) - l->cpu < SHORT_AGAIN_NS)
		return true;
	STORE(l->fresh, 0);
	return false;
}

/* Is what the thread does next behind what is marked? */
static bool is_behind(const struct rs_guard_log *t, const struct stamp *p)
{
	if (t->index >= p->logs)
		return false;
	return rs_guard_try_place(t) >= rs_guard_tries->mark[p->first + t->index].begun;
}

/* Waits of others that were at an end, or begun, before what it does next. */
static bool may_go_on(const struct rs_guard_log *t, uint64_t of)
{
	(void)of;
	for (uint32_t i = 0; i < rs_guard_world()->logs; i++) {
		const struct line *l = &rs_guard_tries->line[i];
		uint32_t at = LOAD(l->at);
		if (i == t->index || stands(rs_guard_log(i)))
			continue;
		if ((at < l->stamps && is_behind(t, &l->stamp[at])) || (at && LOAD(l->fresh) && is_behind(t, &l->stamp[at - 1]) && is_fresh(i)))
			return false;
	}
	return true;
}

static void await(uint32_t i, uint32_t until)
{
	uint32_t is = LOAD(rs_guard_tries->line[i].awaited);
	if (!is || is > (until | 1))
		STORE(rs_guard_tries->line[i].awaited, until | 1);
}

/* Others have done what they had when the wait was over. */
static bool others_have_come(const struct rs_guard_log *t, uint64_t stamp)
{
	const struct stamp *p = &rs_guard_tries->line[t->index].stamp[stamp];
	for (uint32_t i = 0; i < p->logs; i++) {
		const struct rs_guard_log *o = rs_guard_log(i);
		uint32_t to = rs_guard_tries->mark[p->first + i].done, state = LOAD(o->state), at = rs_guard_try_place(o);
		if (i == t->index || stands(o))
			continue;
		bool there = at > to || (at == (to & ~1u) && (!(to & 1) || state != RS_GUARD_RUNS || LOAD(rs_guard_tries->line[i].arrived) == to));
		if (!there || state == RS_GUARD_UNBORN) {
			await(i, to);
			return false;
		}
	}
	return true;
}

/* of: a place, and above that a log's index. */
static bool has_moved_on(const struct rs_guard_log *t, uint64_t of)
{
	uint32_t i = (uint32_t)(of >> 32);
	const struct rs_guard_log *o = rs_guard_log(i);
	uint32_t turns = 0;
	/* Who looks and yields has looked since, and what it did then, before it yielded again. */
	if (rs_guard_yield_waits(o, &turns) && rs_guard_try_place(o) == (uint32_t)of && turns - rs_guard_tries->line[t->index].base_turns < LOOKS)
		return false;
	if (LOAD(rs_guard_tries->line[i].lets) || rs_guard_try_place(o) != (uint32_t)of || LOAD(o->state) != RS_GUARD_RUNS || LOAD(rs_guard_tries->line[i].arrived) == ((uint32_t)of | 1))
		return true;
	await(i, (uint32_t)of);
	const struct way *w = &ways[rs_guard_tries->way];
	bool memory = rs_guard_tries->crasher == NOBODY && rs_guard_tries->differs.who == NOBODY;
	return rs_os_cpu_ns(o->tid) - rs_guard_tries->line[t->index].base >= (memory && w->near ? 0 : memory && w->far ? FAR_NS : SHORT_AGAIN_NS);
}

/* When the wait was over they were somewhere between that and their next events: mostly behind what the program does there, which is short. */
static void let_move_on(struct rs_guard_log *t, const struct stamp *p)
{
	/* Of the wait before this one: those whom that let move on need not again. */
	const struct stamp *last = p - rs_guard_tries->line[t->index].stamp < 2 ? NULL : p - 2;
	for (uint32_t i = 0; i < p->logs; i++) {
		uint32_t to = rs_guard_tries->mark[p->first + i].done;
		bool had = last && last->over && i < last->logs && rs_guard_tries->mark[last->first + i].done == to;
		if (i == t->index || to & 1 || had || rs_guard_try_place(rs_guard_log(i)) != to)
			continue;
		rs_guard_tries->line[t->index].base = rs_os_cpu_ns(rs_guard_log(i)->tid);
		rs_guard_yield_waits(rs_guard_log(i), &rs_guard_tries->line[t->index].base_turns);
		wait_for(t, has_moved_on, (uint64_t)i << 32 | to, LATE_MS);
	}
}

static bool earlier_are_over(const struct rs_guard_log *t, uint64_t than)
{
	for (uint32_t i = 0; i < rs_guard_world()->logs; i++) {
		const struct line *l = &rs_guard_tries->line[i];
		uint32_t at = LOAD(l->at);
		if (i == t->index || stands(rs_guard_log(i)))
			continue;
		if ((at < l->stamps && l->stamp[at].ticks < than) || (at && LOAD(l->fresh) && l->stamp[at - 1].ticks < than && is_fresh(i)))
			return false;
	}
	return rs_guard_tries->crasher == NOBODY || rs_guard_tries->crasher == t->index || than < rs_guard_tries->ticks || LOAD(rs_guard_tries->crossed) || stands(rs_guard_log(rs_guard_tries->crasher));
}

static bool as_late(const struct rs_guard_log *t, uint64_t ended)
{
	(void)t;
	return ticks() - LOAD(rs_guard_tries->again) >= ended - rs_guard_tries->from;
}

/* As late as it was, if that is in the last part of the epoch, which begins with the first wait there. */
static void sleep_as_long(struct rs_guard_log *t, uint64_t ended)
{
	uint64_t none = 0;
	if (ended <= rs_guard_tries->from)
		return;
	__atomic_compare_exchange_n(&rs_guard_tries->again, &none, ticks(), false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	wait_for(t, as_late, ended, SLEPT_MS);
}

static void pass(struct line *l, uint32_t to)
{
	STORE(l->at, to);
	woken();
}

/* Wherever it stands before its next event: what came before that is over, so a wait that is that event has begun. */
static void arrive(struct rs_guard_log *t)
{
	struct line *l = &rs_guard_tries->line[t->index];
	uint32_t i = l->at, awaited = LOAD(l->awaited);
	STORE(l->arrived, rs_guard_try_place(t) | 1);
	/* A lock of the heap may be wanted with another one held: its thread waits for nobody else there (rs_guard_before), and its wait is over. */
	bool heap = t->at < t->end && t->event[t->at].what >> 56 == RS_GUARD_HEAP;
	while (i < l->stamps && (l->stamp[i].event < t->at || (l->stamp[i].event == t->at && (heap || !l->stamp[i].over))))
		i++;
	if (i == l->at && !LOAD(l->fresh) && (!awaited || rs_guard_try_place(t) < (awaited & ~1u)))
		return;
	STORE(l->fresh, 0);
	STORE(l->awaited, 0);
	pass(l, i);
}

void rs_guard_try_arrive(struct rs_guard_log *t)
{
	if (rs_guard_tries && rs_guard_tries->ordered)
		arrive(t);
}

static uint64_t throw(struct line *l)
{
	l->chance ^= l->chance << 13, l->chance ^= l->chance >> 7, l->chance ^= l->chance << 17;
	return l->chance;
}

/* What is between two events is often short. */
static void spin(struct rs_guard_log *t)
{
	uint64_t begun = ticks(), most = rs_guard_tries->line[t->index].chance % SPIN;
	while (ticks() - begun < most)
		__asm__ volatile("pause");
}

void rs_guard_try_waited(struct rs_guard_log *t)
{
	struct line *l = rs_guard_tries && rs_guard_tries->ordered ? &rs_guard_tries->line[t->index] : NULL;
	uint32_t i = l ? l->at : 0;
	if (!l || i == l->stamps || l->stamp[i].event != t->at)
		return;
	/* Of a call's beginning and end, the end; of waits of ours, too. */
	while (i + 1 < l->stamps && l->stamp[i + 1].event == t->at)
		i++;
	const struct stamp *p = &l->stamp[i];
	if (ways[rs_guard_tries->way].slept)
		sleep_as_long(t, p->ticks);
	wait_for(t, earlier_are_over, p->ticks, MOST_MS);
	if (p->logs) {
		wait_for(t, others_have_come, i, MOST_MS);
		let_move_on(t, p);
		/* Memory differs, and nobody knows where that began. */
		if (ways[rs_guard_tries->way].chance && rs_guard_tries->crasher == NOBODY && rs_guard_tries->differs.who == NOBODY && throw(l) % 4 == 0)
			spin(t);
		l->cpu = rs_os_cpu_ns(t->tid);
		STORE(l->fresh, 1);
	}
	pass(l, i + 1);
}

/* --- cuts ------------------------------------------------------------------------------------------------------------------------------------------ */

static bool has_crashed(const struct rs_guard_log *t, uint64_t of)
{
	(void)t, (void)of;
	return LOAD(rs_guard_tries->crossed) || stands(rs_guard_log(rs_guard_tries->crasher));
}

static bool is_in_its_last(const struct rs_guard_log *t, uint64_t of)
{
	(void)t, (void)of;
	return LOAD(rs_guard_log(rs_guard_tries->crasher)->at) >= rs_guard_tries->crash.at;
}

static bool is_past(const struct rs_guard_log *t, uint64_t of)
{
	/* One that goes another way now is noted there just now (cut). */
	uint32_t who = LOAD(rs_guard_tries->differs.who);
	(void)t, (void)of;
	return who != NOBODY && (LOAD(rs_guard_log(who)->at) > rs_guard_tries->differs.at || stands(rs_guard_log(who)));
}

/* It has done as much of a run as in the cut. */
static bool at_run(const struct rs_guard_log *t, const struct cut *c)
{
	uint32_t run = c->run[t->index];
	return run && LOAD(t->at) + 1 == c->other[t->index] && LOAD(t->run) >= run;
}

/* The events that it has behind it in the cut. Who was in the call that makes a thread is behind that: the thread may be the one that crashed. */
static uint32_t cut_of(const struct rs_guard_log *t, const struct cut *c, bool *inside)
{
	uint32_t at = c->other[t->index];
	uint64_t next = at < t->end ? t->event[at].what : 0;
	bool births = c->inside[t->index] && (next == RS_GUARD_WHAT(SYS_clone3, RS_GUARD_CALL) || next == RS_GUARD_WHAT(SYS_clone, RS_GUARD_CALL));
	*inside = c->inside[t->index] && !births;
	return at + births;
}

/* Of the others; more: events further than in the cut. */
static bool are_there(const struct rs_guard_log *t, const struct cut *c, uint32_t more)
{
	for (uint32_t i = 0; i < rs_guard_world()->logs; i++) {
		const struct rs_guard_log *o = rs_guard_log(i);
		bool inside;
		uint32_t at = LOAD(o->at), state = LOAD(o->state), to = cut_of(o, c, &inside) + more;
		bool before = (at < to && !(more == 0 && at_run(o, c))) || (at == to && ((c->born[i] && state == RS_GUARD_UNBORN) || (inside && state == RS_GUARD_RUNS && !LOAD(rs_guard_tries->line[i].held))));
		if (i != t->index && before && !stands(o) && (more == 0 || at < o->end))
			return false;
	}
	return true;
}

static bool crash_may_come(const struct rs_guard_log *t, uint64_t of)
{
	(void)of;
	return are_there(t, &rs_guard_tries->crash, 0);
}

static bool others_are_past(const struct rs_guard_log *t, uint64_t of)
{
	(void)of;
	return are_there(t, &rs_guard_tries->differs, 1);
}

static bool has_passed(const struct rs_guard_log *t, uint64_t stamp)
{
	(void)t;
	return LOAD(rs_guard_tries->line[rs_guard_tries->passes].at) > stamp || LOAD(rs_guard_tries->crossed) || stands(rs_guard_log(rs_guard_tries->passes));
}

static bool acts(const struct rs_guard_log *o, uint32_t at) { return LOAD(o->state) == RS_GUARD_RUNS && LOAD(o->inner) == RS_GUARD_INNER && rs_guard_try_place(o) == at; }

/* It was somebody's turn for a while: what it wants this thread has, from an event before its last one. */
static bool is_wanted(const struct rs_guard_log *t)
{
	struct line *l = &rs_guard_tries->line[t->index];
	if (l->acts && acts(rs_guard_log(l->acts - 1), l->acts_at))
		return now_ms() - l->acts_ms > ACT_MS;
	l->acts = 0;
	for (uint32_t i = 0; i < rs_guard_world()->logs && !l->acts; i++) {
		uint32_t at = rs_guard_try_place(rs_guard_log(i));
		if (i != t->index && acts(rs_guard_log(i), at))
			l->acts = i + 1, l->acts_at = at, l->acts_ms = now_ms();
	}
	return false;
}

static bool has_passed_or_wants(const struct rs_guard_log *t, uint64_t stamp) { return has_passed(t, stamp) || is_wanted(t); }

static bool has_ticket(const struct rs_guard_event *e) { return e->what >> 56 != RS_GUARD_CALL && e->what >> 56 != RS_GUARD_CLOCK && e->ticket != RS_GUARD_UNORDERED; }

/* Did another take, up to the cut or, if c is NULL, the mark of who is to pass, what this one took with the last of its first `at` events? Then it gave it back behind that. */
static bool blocks(const struct rs_guard_log *t, uint32_t at, const struct cut *c, const struct stamp *p)
{
	const struct rs_guard_event *last = at ? &t->event[at - 1] : NULL;
	if (!last || !has_ticket(last))
		return false;
	uint64_t object = RS_GUARD_WHAT(last->what, 0);
	for (uint32_t i = 0; i < (c ? rs_guard_world()->logs : p->logs); i++) {
		uint32_t n = c ? c->other[i] : i == rs_guard_tries->passes ? p->event : events_at(rs_guard_tries->mark[p->first + i].done);
		for (uint32_t k = 0; i != t->index && k < n; k++) {
			const struct rs_guard_event *e = &rs_guard_log(i)->event[k];
			if (RS_GUARD_WHAT(e->what, 0) == object && has_ticket(e) && e->ticket > last->ticket)
				return true;
		}
	}
	return false;
}

/* Another thread came to a wait of its own while this one was between two events: what this one did there comes behind what that one had done until then, which did not crash there. */
static void let_pass(struct rs_guard_log *t)
{
	struct line *l = &rs_guard_tries->line[t->index];
	const struct stamp *p = &rs_guard_tries->line[rs_guard_tries->passes].stamp[rs_guard_tries->pass - 1];
	/* What a thread did that had yielded is more than what it does right behind its event, and that one may have waited for it. */
	if (t->index == rs_guard_tries->passes || t->index >= p->logs || rs_guard_tries->mark[p->first + t->index].done != rs_guard_try_place(t) || rs_guard_tries->mark[p->first + t->index].looks || has_passed(t, rs_guard_tries->pass - 1))
		return;
	if (!l->owes && blocks(t, events_at(rs_guard_try_place(t)), NULL, p)) {
		STORE(l->owes, 1);
		return;
	}
	l->acts = 0;
	STORE(l->fresh, 0);
	STORE(l->lets, 1);
	woken();
	wait_for(t, has_passed_or_wants, rs_guard_tries->pass - 1, MOST_MS);
	STORE(l->lets, 0);
}

/* The crash's thread, to its last wait, if it crashed right behind that; or who crashed where it had not, to the first wait behind that; or nobody, since it is a guess. */
static void choose_pass(void)
{
	struct tries *s = rs_guard_tries;
	bool last = s->way % 2 == 0, strayed = s->differs.who != NOBODY && (s->differs.who != s->crasher || s->differs.at < s->crash.at);
	s->pass = 0;
	if (s->crasher == NOBODY || !(last || strayed))
		return;
	s->passes = last ? s->crasher : s->differs.who;
	const struct line *l = &s->line[s->passes];
	uint32_t i = l->stamps, n = i;
	if (last)
		while (i && (l->stamp[i - 1].over || l->stamp[i - 1].event + 1 < s->crash.at))
			i = l->stamp[i - 1].over ? i - 1 : 0;
	else
		for (i = 1; i <= n && (l->stamp[i - 1].over || l->stamp[i - 1].event < s->differs.at); i++)
			;
	s->pass = i <= n ? i : 0;
}

static bool never(const struct rs_guard_log *t, uint64_t of)
{
	(void)t, (void)of;
	return false;
}

static void by_chance(struct rs_guard_log *t)
{
	const struct cut *c = &rs_guard_tries->differs;
	struct line *l = &rs_guard_tries->line[t->index];
	uint32_t place = t->index == c->who ? c->at : c->other[t->index];
	if (c->who == NOBODY || t->at + NEAR - place > 2 * NEAR)
		return;
	if (throw(l) % 4 == 0)
		wait_for(t, never, 0, l->chance / 4 % 3);
}

/* Is what it does next what it waited for? */
static bool ends_wait(const struct rs_guard_log *t)
{
	const struct line *l = &rs_guard_tries->line[t->index];
	return t->at < t->end && l->at < l->stamps && l->stamp[l->at].event == t->at && t->event[t->at].what >> 56 != RS_GUARD_HEAP;
}

void rs_guard_try_before(struct rs_guard_log *t)
{
	struct tries *s = rs_guard_tries;
	if (!s || !s->ordered)
		return;
	struct line *l = &s->line[t->index];
	const struct way *w = &ways[s->way];
	bool other = s->crasher != NOBODY && t->index != s->crasher, inside;
	const uint32_t cut = other ? cut_of(t, &s->crash, &inside) : 0;
	const bool first = !t->run; /* of a run, whose acts have one place in these: once is enough, and each may be in vain */
	arrive(t);
	/* Its own wait is over before what it does next: others may have done something between the two that needs the one, and that the other comes behind. */
	bool waited = ends_wait(t) && (rs_guard_try_waited(t), LOAD(l->fresh));
	if (!may_go_on(t, 0))
		wait_for(t, may_go_on, 0, MOST_MS);
	if (waited) {
		l->cpu = rs_os_cpu_ns(t->tid);
		STORE(l->fresh, 1);
	}
	if (other && w->meet && first && t->at + w->back == cut)
		wait_for(t, is_in_its_last, 0, UINT64_MAX);
	if (other && (t->at == cut || at_run(t, &s->crash))) {
		STORE(l->held, 1);
		woken();
		wait_for(t, has_crashed, 0, UINT64_MAX);
		STORE(l->held, 0);
	}
	if (w->hold && first && s->crasher == NOBODY && s->differs.who != NOBODY && t->index != s->differs.who && t->at + w->back == s->differs.other[t->index])
		wait_for(t, is_past, 0, MOST_MS);
	if (w->chance)
		by_chance(t);
}

void rs_guard_try_behind(struct rs_guard_log *t)
{
	struct tries *s = rs_guard_tries;
	if (!s || !s->ordered)
		return;
	const struct way *w = &ways[s->way];
	STORE(s->line[t->index].owes, 0);
	if (s->pass)
		let_pass(t);
	if (t->index == s->crasher && t->at == s->crash.at && !s->blocked && !w->free)
		wait_for(t, crash_may_come, 0, UINT64_MAX);
	if (w->late && !t->run && t->index == s->differs.who && t->at + w->back == s->differs.at)
		wait_for(t, others_are_past, 0, LATE_MS);
	if (w->chance && s->differs.who != NOBODY && t->at == (t->index == s->differs.who ? s->differs.at : s->differs.other[t->index]))
		spin(t);
}

void rs_guard_try_gave(void)
{
	struct rs_guard_log *t = rs_guard_tries && rs_guard_mode() == RS_GUARD_REPLAY ? rs_guard_self() : NULL;
	if (!t || !rs_guard_tries->ordered || !rs_guard_tries->line[t->index].owes)
		return;
	let_pass(t);
	STORE(rs_guard_tries->line[t->index].owes, 0);
}

/* --- the coordinator ------------------------------------------------------------------------------------------------------------------------------------ */

long rs_guard_try_begin(void)
{
	struct tries *s = rs_guard_map(RS_ARENA_OWN, sizeof *s);
	struct stamp *stamps = rs_guard_map(RS_ARENA_LOG, (size_t)LOGS * STAMPS * sizeof *stamps);
	struct mark *marks = rs_guard_map(RS_ARENA_LOG, MARKS * sizeof *marks);
	if (!s || !stamps || !marks)
		return -ENOMEM;
	s->mark = marks;
	s->stamp = stamps;
	s->crasher = s->differs.who = NOBODY;
	rs_guard_tries = s;
	return 0;
}

void rs_guard_try_new(void)
{
	if (!rs_guard_tries)
		return;
	for (uint32_t i = 0; i < rs_guard_world()->logs; i++)
		rs_guard_tries->line[i].stamps = 0;
	rs_arena_rest(&rs_guard_tries->use, rs_guard_tries->mark, (rs_guard_tries->marks < MARKS ? rs_guard_tries->marks : MARKS) * sizeof *rs_guard_tries->mark);
	rs_guard_tries->marks = 0;
	rs_guard_tries->crasher = NOBODY;
	rs_guard_tries->ordered = 0;
	rs_guard_tries->begun = ticks();
}

void rs_guard_try_excursion(void)
{
	struct tries *s = rs_guard_tries;
	if (!s)
		return;
	s->way = s->failed = s->gave_up = 0;
	s->differs.who = NOBODY;
	s->came = (struct rs_guard_came){.crash = s->crasher != NOBODY};
	s->excursion_ms = now_ms();
	uint64_t end = s->crasher == NOBODY ? ticks() : s->ticks, ms = s->excursion_ms - rs_guard_world()->begun_ms;
	uint64_t last = (ticks() - s->begun) / (ms ? ms : 1) * SLEPT_MS;
	s->from = end - s->begun > last ? end - last : s->begun;
	s->blocked = s->crasher != NOBODY && blocks(rs_guard_log(s->crasher), s->crash.at, &s->crash, NULL);
}

void rs_guard_try_back(void)
{
	const struct rs_guard_world *w = rs_guard_world();
	struct tries *s = rs_guard_tries;
	if (!s)
		return;
	for (uint32_t i = 0; i < w->logs; i++) {
		s->line[i].at = s->line[i].held = s->line[i].lets = s->line[i].owes = s->line[i].arrived = s->line[i].awaited = s->line[i].fresh = 0;
		s->line[i].chance = (i + 1 + (uint64_t)w->tries * LOGS) * 0x9e3779b97f4a7c15ull;
	}
	s->crossed = 0;
	choose_pass();
	/* Of all epochs most are the same without. */
	s->ordered = w->session && (!w->every || s->crasher != NOBODY || w->tries > 1);
	s->again = s->from == s->begun ? ticks() : 0;
}

bool rs_guard_try_came(uint32_t why)
{
	if (!rs_guard_tries || rs_guard_tries->crasher == NOBODY)
		return why == RS_GUARD_IDENTICAL || why == RS_GUARD_STACK;
	/* A race may leave other bytes, too, that matter to nobody. */
	return rs_guard_tries->crossed && (why == RS_GUARD_IDENTICAL || why == RS_GUARD_STACK || why == RS_GUARD_MEMORY);
}

bool rs_guard_try_more(uint32_t why, uint32_t made)
{
	struct tries *s = rs_guard_tries;
	if (!s || !rs_guard_world()->session)
		return false;
	bool came = rs_guard_try_came(why);
	s->came.made = made;
	if (!s->came.tries)
		s->came.why = why;
	if (came) {
		if (!s->came.tries)
			s->came.tries = made;
		s->failed = 0;
		s->gave_up = now_ms() - s->excursion_ms > LOOKING_MS;
		return false;
	}
	s->failed++;
	bool likely = s->crasher != NOBODY || why == RS_GUARD_MEMORY;
	s->gave_up = s->failed >= (likely ? RS_GUARD_TRIES : OTHERWISE) || now_ms() - s->excursion_ms > (rs_guard_world()->every && s->crasher == NOBODY ? EVERY_MS : PATIENCE_MS);
	s->way = s->ordered ? (s->way + 1) % RS_GUARD_TRIES : 0;
	return !s->gave_up;
}

bool rs_guard_try_long(void) { return rs_guard_tries && rs_guard_tries->came.tries && rs_guard_mode() == RS_GUARD_REPLAY && now_ms() - rs_guard_tries->excursion_ms > LOOKING_MS; }

bool rs_guard_try_gave_up(void) { return rs_guard_tries && rs_guard_tries->gave_up; }
