/* guardlog.c: the logs of threads, tickets and turns of objects, and the waits of `guard`. See guardlog.h. General registers only. */
#include "guardfault.h"
#include "guardlogs.h"
#include "guardplace.h"
#include "guardrace.h"
#include "guardsignal.h"
#include "guardstack.h"
#include "guardtry.h"
#include "world.h"
#include <errno.h>
#include <linux/futex.h>

enum { LOGS = RS_GUARD_LOGS, EVENTS = RS_GUARD_EVENTS, BYTES = RS_GUARD_BYTES, OBJECTS = RS_GUARD_OBJECTS, SPARES = RS_GUARD_SPARES, NEARLY_EVENTS = RS_GUARD_NEARLY_EVENTS, NEARLY_BYTES = RS_GUARD_NEARLY_BYTES };

static struct rs_guard_world *world;
static struct rs_guard_log *logs, *spares;
static struct rs_guard_object *objects;
static uint32_t *used;             /* the objects in use */
static struct rs_guard_own *own;
uint32_t rs_guard_on;
struct rs_guard_view rs_guard_view;
__thread struct rs_guard_log *rs_guard_mine;
static __thread struct rs_guard_log *spare_mine __attribute__((tls_model("initial-exec")));
__thread char *rs_guard_below;
__thread struct rs_guard_alt rs_guard_alt;

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STORE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELEASE)

struct rs_guard_world *rs_guard_world(void) { return world; }
struct rs_guard_log *rs_guard_log(uint32_t i) { return &logs[i]; }
struct rs_guard_node *rs_guard_node(uint32_t i) { return &own->node[i]; }
uint32_t rs_guard_mode(void) { return world ? LOAD(world->mode) : RS_GUARD_OFF; }

void rs_guard_log_parts(const struct rs_guard_parts *p)
{
	logs = p->logs, spares = p->spares, objects = p->objects, used = p->used, own = p->own;
	spare_mine = NULL;
	rs_guard_view = (struct rs_guard_view){p->world, p->objects, p->own->slot};
	STORE(world, p->world);
	STORE(rs_guard_on, 1);
}

/* --- whose log ------------------------------------------------------------------------------------------------------------ */

static struct rs_guard_log *is_mine(struct rs_guard_log *t)
{
	rs_guard_below = own->below[t->index];
	__asm__("mov %%fs:0, %0" : "=r"(t->tp));
	rs_guard_stack_take(t);
	rs_guard_queues_mine();
	return rs_guard_mine = t;
}

static struct rs_guard_log *is_new(struct rs_guard_log *t)
{
	/* glibc lets a thread take signals when it has made its first calls; here it may stand before them, and is stopped by one. */
	const uint64_t stops = 1ull << (RS_WORLD_SIGNAL - 1);
	RS_SYS4(SYS_rt_sigprocmask, SIG_UNBLOCK, &stops, NULL, 8);
	t->young = 1;
	t->cancelled = t->gave_up = t->may_tell = t->tell = 0;
	t->told_sp = 0;
	return is_mine(t);
}

static __attribute__((noinline)) struct rs_guard_log *find_self(void)
{
	struct rs_guard_world *w = world;
	if (!w || !LOAD(w->mode))
		return NULL; /* a forked child sees zeros */
	uint32_t tid = rs_os_tid(), n = LOAD(w->logs);
	for (uint32_t i = 0; i < n && i < LOGS; i++)
		if (LOAD(logs[i].tid) == tid)
			return is_mine(&logs[i]);
	/* Those of threads that have ended (rs_guard_log_new) come first. */
	uint32_t mine = rs_guard_take_place(&logs->tid, sizeof *logs, &w->logs, LOGS, tid);
	if (mine < LOGS)
		return is_new(&logs[mine]);
	rs_guard_lost(RS_GUARD_LOST_THREADS);
	return NULL;
}

struct rs_guard_log *rs_guard_self(void)
{
	struct rs_guard_log *t = rs_guard_mine;
	return RS_LIKELY(t && t->tid) ? t : rs_guard_on ? find_self() : NULL;
}

void rs_guard_free_spares(void)
{
	for (uint32_t i = 0, n = LOAD(world->spares); i < n && i < SPARES; i++) {
		uint32_t tid = LOAD(spares[i].tid);
		if (tid && !rs_world_lives(tid))
			__atomic_compare_exchange_n(&spares[i].tid, &tid, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
	}
}

static struct rs_guard_log *take_spare(uint32_t tid)
{
	uint32_t i = rs_guard_take_place(&spares->tid, sizeof *spares, &world->spares, SPARES, tid);
	if (i == SPARES)
		return NULL;
	spares[i].index = LOGS + i;
	return &spares[i];
}

struct rs_guard_log *rs_guard_spare(void)
{
	struct rs_guard_world *w = world;
	if (!rs_guard_on || !w || !(w->session || LOAD(w->mode)))
		return NULL; /* a forked child sees zeros */
	struct rs_guard_log *t = spare_mine;
	uint32_t tid = rs_os_tid();
	if (RS_LIKELY(t && LOAD(t->tid) == tid))
		return t;
	if (!(t = take_spare(tid))) {
		rs_guard_free_spares();
		t = take_spare(tid);
	}
	if (t) {
		__asm__("mov %%fs:0, %0" : "=r"(t->tp));
		t->cancelled = 0;
		/* As is_new does, for one that waits before glibc lets it take signals. */
		const uint64_t stops = 1ull << (RS_WORLD_SIGNAL - 1);
		RS_SYS4(SYS_rt_sigprocmask, SIG_UNBLOCK, &stops, NULL, 8);
	}
	return spare_mine = t;
}

static void cancel(struct rs_guard_log *t)
{
	__atomic_store_n(&t->cancelled, 1, __ATOMIC_SEQ_CST);
	uint32_t *word = __atomic_load_n(&t->cancel_wait, __ATOMIC_SEQ_CST), none = 0;
	if (!word)
		return;
	if (word == &rs_guard_node(t->index)->signalled)
		__atomic_compare_exchange_n(word, &none, RS_GUARD_TO_LOOK, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
	else
		__atomic_fetch_add(word, 1, __ATOMIC_SEQ_CST);
	RS_SYS3(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT32_MAX);
}

void rs_guard_cancel(uint64_t tp)
{
	struct rs_guard_world *w = world;
	if (!rs_guard_on || !w || !(w->session || LOAD(w->mode)))
		return;
	for (uint32_t i = 0, n = LOAD(w->logs); i < n && i < LOGS; i++)
		if (LOAD(logs[i].tid) && logs[i].tp == tp)
			cancel(&logs[i]);
	for (uint32_t i = 0, n = LOAD(w->spares); i < n && i < SPARES; i++)
		if (LOAD(spares[i].tid) && spares[i].tp == tp)
			cancel(&spares[i]);
}

/* --- objects ----------------------------------------------------------------------------------------------------------------- */

/* Its index; OBJECTS: there is none. Keys stay: what a rollback undoes of an object is its slot. */
static uint32_t index_of(uint64_t key, bool make)
{
	for (uint32_t i = rs_guard_place(key);; i = (i + 1) & (OBJECTS - 1)) {
		uint64_t k = __atomic_load_n(&objects[i].key, __ATOMIC_RELAXED);
		if (k == key)
			return i;
		if (k == 0) {
			if (!make)
				return OBJECTS;
			if (__atomic_load_n(&world->objects, __ATOMIC_RELAXED) >= OBJECTS / 4 * 3) {
				rs_guard_lost(RS_GUARD_LOST_OBJECTS);
				return OBJECTS;
			}
			if (__atomic_compare_exchange_n(&objects[i].key, &k, key, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
				used[__atomic_fetch_add(&world->objects, 1, __ATOMIC_RELAXED)] = i;
				return i;
			}
			if (k == key)
				return i;
		}
	}
}

struct rs_guard_slot *rs_guard_slot(uintptr_t object, bool make)
{
	uint32_t i = index_of(object, make);
	return i == OBJECTS ? NULL : &own->slot[i];
}

/* --- waits ---------------------------------------------------------------------------------------------------------------------- */

static long sleep_on(struct rs_guard_log *t, uint32_t *word, uint32_t value, int clock, const struct timespec *abstime, uint32_t bits, int private)
{
	if (abstime && abstime->tv_sec < 0) /* long over; the kernel would refuse it */
		return -ETIMEDOUT;
	STORE(t->inner, 0);
	t->wait = word;
	STORE(t->state, RS_GUARD_WAITS);
	long r = RS_SYS6(SYS_futex, word, FUTEX_WAIT_BITSET | private | (clock == CLOCK_REALTIME ? FUTEX_CLOCK_REALTIME : 0), value, abstime, 0, bits);
	STORE(t->looked, LOAD(world->round));
	STORE(t->state, RS_GUARD_RUNS);
	return r;
}

long rs_guard_sleep(struct rs_guard_log *t, uint32_t *word, uint32_t value, int clock, const struct timespec *abstime)
{
	/* A spare has no line of stamps. */
	const uint32_t mode = rs_guard_is_spare(t) ? RS_GUARD_OFF : LOAD(world->mode);
	if (mode == RS_GUARD_RECORD)
		rs_guard_try_sleep(t, false);
	else if (mode == RS_GUARD_REPLAY)
		rs_guard_try_arrive(t);
	long r = sleep_on(t, word, value, clock, abstime, ~0u, FUTEX_PRIVATE_FLAG);
	if (mode == RS_GUARD_RECORD && LOAD(world->mode) == RS_GUARD_RECORD)
		rs_guard_try_sleep(t, true);
	return r;
}

long rs_guard_sleep_in_try(struct rs_guard_log *t, uint32_t *word, uint32_t value, const struct timespec *abstime) { return sleep_on(t, word, value, CLOCK_MONOTONIC, abstime, ~0u, FUTEX_PRIVATE_FLAG); }
void rs_guard_sleep_for_word(struct rs_guard_log *t, uint32_t *word, uint32_t value, bool shared, const struct timespec *abstime) { sleep_on(t, word, value, CLOCK_MONOTONIC, abstime, ~0u, shared ? 0 : FUTEX_PRIVATE_FLAG); }

/* A while, or until the word is changed: it is as good as the gate's, which changes seldom. */
static void stand_by(uint32_t gate, uint32_t *word, uint32_t seen, unsigned times)
{
	enum { AT_TIMES = 1000 };
	const struct timespec moment = {0, 1000000};
	if (times % AT_TIMES == AT_TIMES - 1)
		rs_guard_stand_by(gate);
	else
		RS_SYS4(SYS_futex, word, FUTEX_WAIT_PRIVATE, seen, &moment);
}

/* gate: as it was before the thread saw that it is to stand. goes_on: or NULL; changed when the word is. */
static void stand(struct rs_guard_log *t, uint64_t what, uint32_t gate, bool (*goes_on)(const struct rs_guard_log *t), uint32_t *word)
{
	const uint64_t stops = 1ull << (RS_WORLD_SIGNAL - 1);
	uint64_t masked = 0;
	STORE(t->inner, 0);
	t->pending = what;
	STORE(t->state, RS_GUARD_ENDED);
	if (!goes_on)
		__atomic_fetch_add(&world->ended, 1, __ATOMIC_SEQ_CST);
	RS_SYS3(SYS_futex, &world->ended, FUTEX_WAKE_PRIVATE, 1);
	/* glibc blocks all signals around some calls (pthread_kill): here a stop must come. */
	RS_SYS4(SYS_rt_sigprocmask, SIG_UNBLOCK, &stops, &masked, 8);
	uint64_t since = rs_os_now_ns();
	for (unsigned i = 0; LOAD(world->gate) == gate; i++) {
		uint32_t seen = goes_on ? LOAD(*word) : 0;
		if (goes_on && goes_on(t))
			break;
		if (goes_on)
			stand_by(gate, word, seen, i);
		else
			rs_guard_stand_by(gate);
	}
	t->stood_ns += rs_os_now_ns() - since;
	/* A re-execution may go astray: it must be stopped wherever it is. Its calls change no mask. */
	if (masked & stops && LOAD(world->mode) != RS_GUARD_REPLAY)
		RS_SYS4(SYS_rt_sigprocmask, SIG_BLOCK, &stops, NULL, 8);
	STORE(t->state, RS_GUARD_RUNS);
	t->pending = 0;
}

static uint32_t bit(uint32_t ticket) { return 1u << ticket % 32; }

/* Waits for the object's turn, or with past for that or a later one. False: it will not come. */
static bool turn_of(struct rs_guard_log *t, uint64_t key, uint32_t ticket, bool past)
{
	uint32_t i = index_of(key, true);
	if (i == OBJECTS || world->unordered)
		return true;
	struct rs_guard_object *o = &objects[i];
	for (;;) {
		uint32_t now = LOAD(o->turn);
		if (now == ticket || (past && now > ticket))
			return true;
		if (LOAD(world->ending) || LOAD(world->mode) != RS_GUARD_REPLAY)
			return false;
		__atomic_fetch_add(&o->sleepers, 1, __ATOMIC_SEQ_CST);
		sleep_on(t, &o->turn, now, CLOCK_MONOTONIC, NULL, bit(ticket), FUTEX_PRIVATE_FLAG);
		__atomic_fetch_sub(&o->sleepers, 1, __ATOMIC_SEQ_CST);
	}
}

static bool turn(struct rs_guard_log *t, uint64_t key, uint32_t ticket) { return turn_of(t, key, ticket, false); }

static void next_turn(uint64_t key, uint32_t ticket)
{
	uint32_t i = index_of(key, true);
	if (i == OBJECTS)
		return;
	struct rs_guard_object *o = &objects[i];
	__atomic_exchange_n(&o->turn, ticket + 1, __ATOMIC_SEQ_CST);
	if (LOAD(o->sleepers))
		RS_SYS6(SYS_futex, &o->turn, FUTEX_WAKE_BITSET | FUTEX_PRIVATE_FLAG, INT32_MAX, 0, 0, bit(ticket + 1));
}

uint32_t rs_guard_ticket(uintptr_t object)
{
	uint32_t i = index_of(object, true);
	return i == OBJECTS ? 0 : __atomic_fetch_add(&objects[i].ticket, 1, __ATOMIC_ACQ_REL);
}

bool rs_guard_turn(struct rs_guard_log *t, uintptr_t object, uint32_t ticket) { return turn(t, object, ticket); }
void rs_guard_next_turn(uintptr_t object, uint32_t ticket) { next_turn(object, ticket); }

uint32_t rs_guard_tickets(uintptr_t object)
{
	uint32_t i = index_of(object, false);
	return i == OBJECTS ? 0 : LOAD(objects[i].ticket);
}

bool rs_guard_behind(struct rs_guard_log *t, uintptr_t object, uint32_t tickets) { return tickets == 0 || turn_of(t, object, tickets, true); }

/* --- events ------------------------------------------------------------------------------------------------------------------------ */

static uint64_t object_of(uint64_t what) { return what & 0xffffffffffffffull; }
uint64_t rs_guard_key_of(uint64_t what)
{
	switch (what >> 56) {
	case RS_GUARD_LIBC: return rs_guard_libc_key(object_of(what));
	case RS_GUARD_CHANGE:
	case RS_GUARD_CHANGE_RUN:
	case RS_GUARD_QUEUE:
	case RS_GUARD_QUEUE_RUN: return rs_guard_futex_key(object_of(what));
	default: return object_of(what);
	}
}

void rs_guard_lost(uint32_t why)
{
	uint32_t none = 0;
	if (world && !(LOAD(world->fault.who) && rs_guard_fault_cuts(why)))
		__atomic_compare_exchange_n(&world->lost, &none, why, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

void rs_guard_diverged(struct rs_guard_log *t, uint32_t why, uint64_t was, uint64_t is)
{
	uint32_t none = RS_GUARD_IDENTICAL;
	if (LOAD(world->mode) != RS_GUARD_REPLAY)
		return;
	if (__atomic_compare_exchange_n(&world->found, &none, why, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
		world->tid = t ? t->tid : 0;
		world->event = t ? t->at : 0;
		rs_guard_try_diverged(t);
		world->was = was;
		world->is = is;
		STORE(world->why, why); /* with all the rest */
	}
	rs_guard_race_astray();
	STORE(world->ending, 1);
}

uint64_t rs_guard_next(const struct rs_guard_log *t)
{
	return LOAD(world->mode) == RS_GUARD_REPLAY && !LOAD(world->ending) && rs_guard_next_at(t) < t->end ? t->event[rs_guard_next_at(t)].what : 0;
}

bool rs_guard_strays(struct rs_guard_log *t)
{
	/* IDLE: some of the waits between threads are guesses, which end when nobody has moved for 200 ms. */
	const uint64_t RECENT_NS = 10000000, ALONE_NS = 20000000, IDLE_NS = 500000000, now = rs_os_now_ns();
	uint64_t sum = 1;
	bool waits = false, runs = false;
	for (uint32_t i = 0, n = LOAD(world->logs); i < n && i < LOGS; i++) {
		const struct rs_guard_log *o = &logs[i];
		sum += (uint64_t)LOAD(o->at) << 10 | LOAD(o->run);
		uint32_t state = LOAD(o->state);
		if (o == t || !LOAD(o->tid) || state == RS_GUARD_ENDED || state == RS_GUARD_KEPT || state == RS_GUARD_UNBORN || now - LOAD(o->strays.last_ns) < RECENT_NS)
			continue;
		waits = true;
		runs |= state == RS_GUARD_RUNS;
	}
	if (runs || t->strays.sum != sum || now - t->strays.last_ns > RECENT_NS * 2)
		t->strays.sum = sum, t->strays.since_ns = now;
	STORE(t->strays.last_ns, now);
	return now - t->strays.since_ns > (waits ? IDLE_NS : ALONE_NS);
}

void rs_guard_pass_over(struct rs_guard_log *t, uint32_t at)
{
	for (; t->at < at; STORE(t->at, t->at + 1))
		rs_guard_try_waited(t);
}

static void pass_over(struct rs_guard_log *t)
{
	if (LOAD(world->mode) == RS_GUARD_REPLAY && RS_UNLIKELY(t->at < t->end && rs_guard_is_chance(&t->event[t->at]))) {
		rs_guard_pass_over(t, rs_guard_next_at(t));
		rs_guard_try_arrive(t);
	}
}

bool rs_guard_pause(struct rs_guard_log *t, uintptr_t object, unsigned kind)
{
	uint64_t what = RS_GUARD_WHAT(object, kind);
	if (RS_UNLIKELY(rs_guard_is_spare(t)))
		return false;
	if (rs_guard_signals(t, what))
		return true;
	uint32_t gate = LOAD(world->gate);
	if (kind != RS_GUARD_CHANGE && kind != RS_GUARD_CHANGE_RUN)
		pass_over(t);
	bool over = LOAD(world->mode) == RS_GUARD_REPLAY && t->at == t->end;
	if (over && t->pending_end != what && t->pending_end)
		rs_guard_diverged(t, RS_GUARD_MORE, t->pending_end, what);
	else if (over)
		rs_guard_try_aborts(t);
	if (!over && !LOAD(world->ending))
		return false;
	stand(t, what, gate, NULL, NULL);
	return true;
}

static int32_t result_of(const struct rs_guard_event *e) { return rs_guard_more(e) ? 0 : e->result; }

/* Of a word's change: false, and what comes next is to be looked for again. */
static bool look_again(struct rs_guard_log *t, struct rs_guard_event *was)
{
	STORE(t->inner, 0);
	was->ticket = RS_GUARD_UNORDERED;
	return false;
}

bool rs_guard_before(struct rs_guard_log *t, uintptr_t object, unsigned kind, struct rs_guard_event *was)
{
	const bool word = kind == RS_GUARD_CHANGE || kind == RS_GUARD_CHANGE_RUN || kind == RS_GUARD_QUEUE || kind == RS_GUARD_QUEUE_RUN;
	uint64_t what = RS_GUARD_WHAT(object, kind);
	if (was)
		*was = (struct rs_guard_event){0};
	if (RS_UNLIKELY(rs_guard_is_spare(t)))
		return false;
	if (RS_UNLIKELY(LOAD(world->mode) == RS_GUARD_REPLAY))
		rs_guard_try_before(t);
	for (;;) {
		if (was)
			*was = (struct rs_guard_event){0};
		STORE(t->inner, RS_GUARD_INNER);
		RS_BARRIER();
		/* A heap's locks are taken one inside the other, and nobody can stand before the inner one. */
		if (kind == RS_GUARD_HEAP ? LOAD(world->ending) : rs_guard_pause(t, object, kind)) {
			if (word)
				return look_again(t, was);
			if (kind != RS_GUARD_HEAP)
				continue;
			return false;
		}
		if (LOAD(world->mode) != RS_GUARD_REPLAY) {
			if (RS_LIKELY(t->at < NEARLY_EVENTS) || kind == RS_GUARD_HEAP || !rs_guard_full(t, object, kind))
				return false;
			if (word) /* it may be a re-execution by now, which it comes to as to a new one */
				return look_again(t, was);
			continue;
		}
		pass_over(t);
		if (t->at == t->end) {
			if (!rs_guard_fault_behind(t))
				rs_guard_diverged(t, RS_GUARD_MORE, 0, what);
			if (kind == RS_GUARD_HEAP)
				return false;
			continue;
		}
		const struct rs_guard_event *e = &t->event[t->at];
		/* Nobody knows what a clock will say. */
		if (e->what != what && (kind != RS_GUARD_TSC || e->what >> 56 != RS_GUARD_TSC)) {
			rs_guard_diverged(t, RS_GUARD_EVENT, e->what, what);
			continue;
		}
		/* Before its turn: others may have had theirs between the wait and that. */
		if (kind != RS_GUARD_HEAP)
			rs_guard_try_waited(t);
		if (e->ticket != RS_GUARD_UNORDERED && !turn(t, rs_guard_key_of(what), e->ticket + t->run))
			continue;
		if (was)
			*was = (struct rs_guard_event){e->what, e->ticket, result_of(e)};
		return true;
	}
}

/* No huge pages: they cost a quarter of as many small ones, but fifteen times where the machine is a virtual one and its host has
 * the free memory back (free page reporting), as that is memory of huge pages first. */
static __attribute__((noinline)) void make_ready(struct rs_guard_log *t)
{
	uint32_t more = (uint32_t)(rs_arena_next(t->ready * sizeof *t->event) / sizeof *t->event) - t->ready;
	if (t->ready)
		RS_SYS3(SYS_madvise, t->event + t->ready, more * sizeof(struct rs_guard_event), 23 /* MADV_POPULATE_WRITE */);
	t->ready += more;
	t->quick = 0;
}
_Static_assert(EVENTS * sizeof(struct rs_guard_event) % (64 * RS_PAGE) == 0, "the last step ends at the log's end");

/* Who forbids quick acts writes what forbids them, and then `quick`; here it is the other way about, so that one of the two sees the other. A handler is the thread's own. */
static __attribute__((noinline)) void allow_quick(struct rs_guard_log *t)
{
	if (!rs_quick)
		return;
	__atomic_exchange_n(&t->quick, t->ready < NEARLY_EVENTS ? t->ready : NEARLY_EVENTS, __ATOMIC_SEQ_CST);
	if (!rs_guard_plainly(world) || LOAD(t->signals))
		STORE(t->quick, 0);
}

void rs_guard_no_quick(void)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	for (uint32_t i = 0, n = LOAD(world->logs); i < n && i < LOGS; i++)
		STORE(logs[i].quick, 0);
}

/* Between before and after, or at a call. Quick acts do not look whether somebody will read what they write, and they need room. */
static void in_lost(struct rs_guard_log *t)
{
	if (!t->ready)
		make_ready(t);
	if (t->at >= t->ready || t->at >= NEARLY_EVENTS)
		STORE(t->at, 0);
	if (!t->quick)
		allow_quick(t);
}

/* Between before and after. */
static void append(struct rs_guard_log *t, uint64_t what, uint32_t ticket, int32_t result)
{
	uint32_t at = t->at;
	if (RS_UNLIKELY(rs_guard_is_lost(world))) {
		in_lost(t);
		return;
	}
	if (at == EVENTS) {
		rs_guard_lost(RS_GUARD_LOST_LOG);
		return;
	}
	if (RS_UNLIKELY(at >= t->ready))
		make_ready(t);
	if (RS_UNLIKELY(!t->quick))
		allow_quick(t);
	t->event[at] = (struct rs_guard_event){what, ticket, result};
	STORE(t->at, at + 1);
}

/* Whether it is a re-execution. */
static inline bool after(struct rs_guard_log *t, uint64_t what, int32_t result, bool ordered)
{
	/* A stop in here would be of an event that is half in one epoch and half in the next. */
	STORE(t->inner, RS_GUARD_INNER);
	RS_BARRIER();
	bool replay = LOAD(world->mode) == RS_GUARD_REPLAY;
	if (!replay) {
		uint32_t i = ordered ? index_of(rs_guard_key_of(what), true) : OBJECTS;
		append(t, what, i == OBJECTS ? RS_GUARD_UNORDERED : __atomic_fetch_add(&objects[i].ticket, 1, __ATOMIC_ACQ_REL), result);
	} else if (!LOAD(world->ending)) {
		pass_over(t);
		const struct rs_guard_event *e = &t->event[t->at];
		if (t->at == t->end) {
			if (!rs_guard_fault_behind(t))
				rs_guard_diverged(t, RS_GUARD_MORE, 0, what);
		} else if (e->what != what)
			rs_guard_diverged(t, RS_GUARD_EVENT, e->what, what);
		else if (result_of(e) != result)
			rs_guard_diverged(t, RS_GUARD_RESULT, (uint64_t)(int64_t)result_of(e), (uint64_t)(int64_t)result);
		else if (e->ticket == RS_GUARD_UNORDERED || turn(t, rs_guard_key_of(what), e->ticket + t->run)) {
			uint32_t ticket = e->ticket + t->run;
			bool ordered_then = e->ticket != RS_GUARD_UNORDERED;
			if (t->run < rs_guard_more(e))
				STORE(t->run, t->run + 1);
			else {
				t->run = 0;
				STORE(t->at, t->at + 1);
			}
			if (ordered_then)
				next_turn(rs_guard_key_of(what), ticket);
		}
	}
	RS_BARRIER();
	return replay;
}

void rs_guard_after(struct rs_guard_log *t, uintptr_t object, unsigned kind, int32_t result, bool ordered)
{
	if (RS_UNLIKELY(rs_guard_is_spare(t)))
		return;
	bool replay = after(t, RS_GUARD_WHAT(object, kind), result, ordered);
	STORE(t->inner, 0);
	if (RS_UNLIKELY(replay))
		rs_guard_try_behind(t);
}

void rs_guard_after_still(struct rs_guard_log *t, uintptr_t object, unsigned kind, int32_t result, bool ordered)
{
	if (after(t, RS_GUARD_WHAT(object, kind), result, ordered)) {
		STORE(t->inner, 0);
		rs_guard_try_behind(t);
		STORE(t->inner, RS_GUARD_INNER);
	}
}

/* --- calls ----------------------------------------------------------------------------------------------------------------------------- */

/* Likewise of bytes, from the second page on: a log that has few is not worth a call. */
static __attribute__((noinline)) void make_bytes_ready(struct rs_guard_log *t, uint32_t end)
{
	uint32_t from = t->bytes_ready ? t->bytes_ready : RS_PAGE, to = from;
	while (to < end)
		to = (uint32_t)rs_arena_next(to);
	to = to < BYTES ? to : BYTES;
	if (to > from)
		RS_SYS3(SYS_madvise, t->bytes + from, to - from, 23 /* MADV_POPULATE_WRITE */);
	t->bytes_ready = to;
}

void *rs_guard_call_put(struct rs_guard_log *t, uint16_t number, int64_t result, uint32_t bytes)
{
	uint32_t room = 8 + ((bytes + 7) & ~7u);
	if (RS_UNLIKELY(rs_guard_is_lost(world))) {
		in_lost(t);
		return NULL;
	}
	if (bytes > BYTES || t->bytes_at + room > BYTES || t->at == EVENTS) {
		rs_guard_lost(RS_GUARD_LOST_LOG);
		return NULL;
	}
	if (RS_UNLIKELY(t->bytes_at + room > t->bytes_ready))
		make_bytes_ready(t, t->bytes_at + room);
	char *p = t->bytes + t->bytes_at;
	rs_os_copy(p, &result, 8);
	t->bytes_at += room;
	append(t, RS_GUARD_WHAT(number, RS_GUARD_CALL), bytes, 0);
	return p + 8;
}

const void *rs_guard_call_take(struct rs_guard_log *t, uint16_t number, int64_t *result, uint32_t *bytes)
{
	uint64_t what = RS_GUARD_WHAT(number, RS_GUARD_CALL);
	if (LOAD(world->mode) != RS_GUARD_REPLAY || LOAD(world->ending) || rs_guard_next_at(t) == t->end)
		return NULL;
	rs_guard_try_before(t);
	pass_over(t);
	const struct rs_guard_event *e = &t->event[t->at];
	if (e->what != what) {
		rs_guard_diverged(t, RS_GUARD_CALL_NUMBER, e->what, what);
		return NULL;
	}
	rs_guard_try_waited(t);
	const char *p = t->bytes + t->bytes_at;
	rs_os_copy(result, p, 8);
	*bytes = e->ticket;
	t->bytes_at += 8 + ((e->ticket + 7) & ~7u);
	STORE(t->at, t->at + 1);
	rs_guard_try_behind(t);
	return p + 8;
}

bool rs_guard_clock_take(struct rs_guard_log *t, uint64_t what, uint64_t *value)
{
	if (rs_guard_next(t) >> 56 != RS_GUARD_CLOCK)
		return false;
	rs_guard_try_before(t);
	pass_over(t);
	const struct rs_guard_event *e = &t->event[t->at];
	if (e->what != what)
		rs_guard_diverged(t, RS_GUARD_CALL_ARGUMENT, e->what, what);
	*value = e->ticket | (uint64_t)(uint32_t)e->result << 32;
	STORE(t->at, t->at + 1);
	rs_guard_try_behind(t);
	return true;
}

void rs_guard_replay_end(struct rs_guard_log *t, uint16_t number) { rs_guard_pause(t, number, RS_GUARD_CALL); }

void rs_guard_call_begin(struct rs_guard_log *t, uint16_t number, bool may_wait)
{
	do {
		if (t->at >= NEARLY_EVENTS || t->bytes_at >= NEARLY_BYTES)
			rs_guard_full(t, number, RS_GUARD_CALL);
	} while (LOAD(world->mode) == RS_GUARD_RECORD && rs_guard_pause(t, number, RS_GUARD_CALL));
	STORE(t->inner, RS_GUARD_AT_CALL);
	RS_BARRIER();
	if (LOAD(world->mode) != RS_GUARD_RECORD) {
		STORE(t->inner, 0);
		return;
	}
	if (may_wait) {
		rs_guard_try_wait(t, false);
		t->pending = RS_GUARD_WHAT(number, RS_GUARD_CALL);
		STORE(t->state, RS_GUARD_IN_CALL);
	}
}

bool rs_guard_call_over(struct rs_guard_log *t)
{
	bool waited = t->state == RS_GUARD_IN_CALL;
	STORE(t->inner, RS_GUARD_INNER); /* until what the call gave is written down */
	STORE(t->state, RS_GUARD_RUNS);
	t->pending = 0;
	return waited;
}

void rs_guard_stand(struct rs_guard_log *t, uintptr_t object, unsigned kind, uint32_t gate) { stand(t, RS_GUARD_WHAT(object, kind), gate, NULL, NULL); }

void rs_guard_stand_unless(struct rs_guard_log *t, uintptr_t object, unsigned kind, uint32_t gate, bool (*goes_on)(const struct rs_guard_log *t), uint32_t *word) { stand(t, RS_GUARD_WHAT(object, kind), gate, goes_on, word); }
