/* guardrace.c: a re-execution whose accesses are judged. See guardrace.h.
 *
 * Ground rules: guard.h's; general registers only. All but `found` is private memory, which going forward makes what it was: rs_config, the detector's tables, threads' pointers to what they have of it. */
#include "guardrace.h"
#include "alloc.h"
#include "evidence.h"
#include "guardlog.h"
#include "patch.h"
#include "race.h"
#include "share.h"
#include <errno.h>
#include <sys/mman.h>

enum { TEXTS = 1024, RACES = 64, STACKS = 4096, FRAMES = 32, WORDS = 520, PLACES = 255, WAIT_PAGES = 1 << 14 /* of the program, whose history is kept: 280 MB */, FREED_PAGES = WAIT_PAGES / 4 };

/* In the arena. */
static struct races {
	uint32_t untold, count, told;
	uint32_t dropped;          /* there was no room */
	uint32_t astray;
	struct { uint32_t count; struct { uintptr_t lo; size_t bytes; } at[TEXTS]; } pristine;
	struct { uint64_t count; struct { uint64_t lo, hi; } at[PLACES]; } places; /* that re-executions map (engine/whole.go reads it) */
	struct rs_race_found race[RACES];
	struct { uint32_t n; uint64_t pc[FRAMES]; } where[RACES][2]; /* n 0: the stack has its number for good */
	struct stack { uint32_t id, n; uint64_t pc[FRAMES]; } stack[STACKS]; /* that got their numbers in the re-execution */
	struct { uint64_t word[WORDS]; } room[RS_GUARD_LOGS];
} *found;

uint32_t *rs_guard_race_untold;

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STORE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELEASE)

/* --- order ---------------------------------------------------------------------------------------------------------------------------------- */

static struct rs_thread *judged(void)
{
	struct rs_thread *t = rs_thread_tls;
	return t && found && rs_guard_mode() == RS_GUARD_REPLAY ? t : NULL;
}

void rs_guard_race_order(uint64_t object, bool gives, bool takes, bool shared)
{
	struct rs_thread *t = judged();
	if (!t)
		return;
	if (t->accesses)
		rs_access_event(t, gives ? RS_EV_RELEASE : RS_EV_ACQUIRE);
	rs_race_order(t->number, object, gives, takes, shared);
}

void rs_guard_race_all(void)
{
	struct rs_thread *t = judged();
	if (t && t->accesses)
		rs_access_event(t, RS_EV_SIGNAL_ENTER);
	if (t)
		rs_race_amnesty();
}

/* --- events ----------------------------------------------------------------------------------------------------------------------------------- */

uint64_t *rs_guard_race_room(struct rs_thread *t, unsigned id, unsigned words)
{
	const struct rs_guard_log *log = found ? rs_guard_self() : NULL;
	if (!log || words > WORDS || t->emit_sp) {
		if (id != RS_EV_STACK && id != RS_EV_FRAME && id != RS_EV_NOTICE)
			rs_race_amnesty(); /* it may have ordered something */
		return NULL;
	}
	t->emit_sp = (uintptr_t)__builtin_frame_address(0);
	uint64_t *w = found->room[log->index].word;
	w[0] = id;
	return t->record[0] = w;
}

static struct stack *stack_at(uint32_t id, bool make)
{
	for (uint32_t i = id * 0x9e3779b9u >> 20, probe = 0; probe < STACKS; i++, probe++) {
		struct stack *s = &found->stack[i % STACKS];
		uint32_t none = 0;
		if (LOAD(s->id) == id || (make && __atomic_compare_exchange_n(&s->id, &none, id, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) || none == id)
			return s;
		if (!make && LOAD(s->id) == 0)
			return NULL;
	}
	return NULL;
}

static void note_stack(const uint64_t *w)
{
	struct stack *s = stack_at(rs_get_stack_id(w), true);
	uint64_t n = w[2];
	if (!s)
		return;
	if (n > FRAMES)
		n = FRAMES;
	rs_os_copy(s->pc, w + RS_STACK_WORDS, n * sizeof *w);
	STORE(s->n, (uint32_t)n);
}

void rs_guard_race_commit(struct rs_thread *t)
{
	const uint64_t *w = t->record[0];
	unsigned id = (uint8_t)w[0];
	if (id == RS_EV_STACK)
		note_stack(w);
	else
		rs_race_live_event(t, w);
	RS_BARRIER();
	t->emit_sp = 0;
}

/* --- telling ------------------------------------------------------------------------------------------------------------------------------------ */

static uint32_t number_of(struct rs_thread *t, uint32_t i, unsigned which, uint32_t id)
{
	uint32_t n = found->where[i][which].n;
	if (!n)
		rs_stack_tell(t, id); /* of a block that was freed before the epoch */
	return n ? rs_stack_of(t, found->where[i][which].pc, n) : id;
}

struct block_of { struct rs_thread *t; uintptr_t addr; struct rs_evidence e; bool known; };

static void ask_block(void *arg)
{
	struct block_of *of = arg;
	of->known = rs_evidence_block(of->t, of->addr, &of->e);
}

void rs_guard_race_tell(struct rs_thread *t)
{
	while (LOAD(found->told) < LOAD(found->count)) {
		uint32_t i = __atomic_fetch_add(&found->told, 1, __ATOMIC_ACQ_REL);
		if (i >= found->count) {
			STORE(found->told, found->count);
			break;
		}
		__atomic_fetch_sub(&found->untold, 1, __ATOMIC_ACQ_REL);
		const struct rs_race_found *f = &found->race[i];
		uint32_t stack = number_of(t, i, 0, f->stack), stack2 = number_of(t, i, 1, f->stack2);
		/* The block of an access to freed memory, or of a race: as it is where the recording ended. */
		struct block_of of = {.t = t, .addr = f->addr};
		rs_vectors_kept(ask_block, &of); /* what is emitted may be a recipe's */
		struct rs_evidence e = of.e;
		bool block = of.known && of.addr - e.block < e.size;
		if (block)
			RS_EMIT(t, ALLOC, alloc, e.block, e.size, e.alloc_stack, RS_ALLOC_MALLOC);
		RS_EMIT(t, RACE, race, f->rule, f->kind, f->kind2, f->by, f->addr, f->size, f->pc, stack, f->by2, f->addr2, f->size2, f->pc2, stack2, f->count);
		if (block)
			RS_EMIT(t, FREE, free, e.block, 0, RS_ALLOC_FREE);
	}
}

/* --- the coordinator ------------------------------------------------------------------------------------------------------------------------------ */

static void count(unsigned how) { __atomic_fetch_add(&rs_counters->guard_judged[how], 1, __ATOMIC_RELAXED); }

long rs_guard_race_begin(void)
{
	if (!(rs_config.guard & 4))
		return 0;
	if (!(found = rs_guard_map(RS_ARENA_OWN, sizeof *found)))
		return -ENOMEM;
	rs_guard_race_untold = &found->untold;
	return 0;
}

bool rs_guard_race_wanted(void) { return found && !rs_guard_limited(); }

void rs_guard_race_place(uint64_t lo, uint64_t bytes)
{
	if (!found || rs_config.races || lo + bytes < lo)
		return;
	uint64_t hi = (lo + bytes + RS_PAGE - 1) & -(uint64_t)RS_PAGE, n = LOAD(found->places.count);
	for (uint64_t i = 0; i < n && i < PLACES; i++)
		if (lo >= found->places.at[i].lo && hi <= found->places.at[i].hi)
			return;
	if (n >= PLACES || (n = __atomic_fetch_add(&found->places.count, 1, __ATOMIC_ACQ_REL)) >= PLACES)
		return; /* whatever needs it goes astray, if that is where trampolines come to lie */
	found->places.at[n].lo = lo;
	found->places.at[n].hi = hi;
}

void rs_guard_race_ahead(void)
{
	rs_patch_standing(RS_PATCH_ASK_SURVEY, (uintptr_t)&found->places);
	STORE(found->places.count, 0);
}

void rs_guard_race_astray(void)
{
	if (found && rs_config.races)
		STORE(found->astray, 1);
}

struct at { uintptr_t p; bool lives; };

static void ask_heap(void *arg)
{
	struct at *at = arg;
	struct rs_alloc_wrong w;
	at->lives = rs_alloc_at(at->p, &w) && !w.freed;
}

/* Of a block whose handing out was not told (an event had no room) the heap knows better. */
static bool look(const struct rs_race_found *f)
{
	if (LOAD(found->astray))
		return false;
	if (f->rule != RS_RACE_RULE_USE_AFTER_FREE)
		return !rs_library_cache(f);
	struct at at = {.p = f->addr};
	rs_vectors_kept(ask_heap, &at);
	return !at.lives;
}

static bool was_freed(const struct rs_alloc_wrong *w)
{
	struct rs_race_counts n;
	rs_race_count(&n);
	if (n.pages >= FREED_PAGES)
		return false;
	rs_race_was_freed(w->block, w->size, w->free_stack, w->free_thread);
	return true;
}

static void known(struct rs_thread *t) { rs_race_live_known(t); }

bool rs_guard_race_on(void)
{
	static const struct rs_race_config config = {.max_pages = WAIT_PAGES, .look = look};
	STORE(found->astray, 0);
	for (uint32_t i = 0; i < STACKS; i++)
		found->stack[i].id = found->stack[i].n = 0;
	if (rs_patch_standing(RS_PATCH_ASK_WHOLE, 0) < 0 || !rs_race_begin(&config)) {
		count(RS_GUARD_JUDGED_REFUSED);
		return false;
	}
	rs_race_fork_begins(); /* what comes by channels may come from anywhere */
	rs_region_each(known);
	rs_alloc_each_kept(was_freed);
	rs_config.races = RS_RACES_FULL;
	rs_config.all = 1;
	return true;
}

static void keep_stack(uint32_t i, unsigned which, uint32_t id)
{
	const struct stack *s = id ? stack_at(id, false) : NULL;
	found->where[i][which].n = s ? s->n : 0;
	if (s)
		rs_os_copy(found->where[i][which].pc, s->pc, s->n * sizeof *s->pc);
}

/* Is it in the list already? It is made of several places of each kind; the reporter knows which are the same. */
static bool is_there(const struct rs_race_found *f)
{
	for (uint32_t i = 0; i < found->count; i++)
		if (found->race[i].pc == f->pc && found->race[i].pc2 == f->pc2 && found->race[i].rule == f->rule)
			return true;
	return false;
}

void rs_guard_race_over(void)
{
	struct rs_race_found f;
	count(LOAD(found->astray) ? RS_GUARD_JUDGED_ASTRAY : RS_GUARD_JUDGED_WHOLE);
	rs_race_end();
	while (rs_race_next(&f)) {
		if (f.rule == RS_RACE_RULE_PENDING_RACE || f.rule == RS_RACE_RULE_PENDING_FREE || is_there(&f))
			continue;
		if (found->count == RACES) {
			found->dropped++;
			continue;
		}
		found->race[found->count] = f;
		keep_stack(found->count, 0, f.stack);
		keep_stack(found->count, 1, f.stack2);
		found->count++;
		found->untold++;
	}
}

/* The kernel forgets what was written to a private mapping of a file. */
static long make_pristine(uintptr_t lo, size_t bytes)
{
	enum { DONTNEED_LOCKED = 24 };
	long r = RS_SYS3(SYS_madvise, lo, bytes, MADV_DONTNEED);
	return r == -EINVAL ? RS_SYS3(SYS_madvise, lo, bytes, DONTNEED_LOCKED) : r;
}

long rs_guard_race_pristine(uintptr_t lo, size_t bytes)
{
	long r = found && found->pristine.count < TEXTS ? make_pristine(lo, bytes) : -ENOSPC;
	if (r == 0) {
		found->pristine.at[found->pristine.count].lo = lo;
		found->pristine.at[found->pristine.count++].bytes = bytes;
	}
	return r;
}

/* All threads go on by rt_sigreturn, which serializes. */
long rs_guard_race_back(void)
{
	long r = 0;
	for (uint32_t i = 0; i < found->pristine.count && r == 0; i++)
		r = make_pristine(found->pristine.at[i].lo, found->pristine.at[i].bytes);
	found->pristine.count = 0;
	return r;
}
