/* guardyield.c: sched_yield in an epoch of `guard`. See guardyield.h; docs/decisions.md, 59.
 *
 * In a nutshell. How often a loop yields until another thread has done something is chance: so a yield is no event. In a recording it costs a count. In a re-execution a thread that yields goes on when nobody else runs, or after a moment: then most of
 * those for whom it may wait have done what they do.
 * Where an epoch ends no count says which turn of its loop the thread is to stand in, and none need: it takes turns until all others stand, and then until a turn changes nothing (*settled*: the next yield finds the same stack pointer, registers and words
 * of the stack, and nobody else has moved meanwhile). What it waits for is not there then, and a re-execution, which does the same, comes to the same yield with the same memory, however many turns it took. Who comes to no such turn (it counts its
 * yields, or two threads hand each other turns) stands after some, and the re-execution stands where registers and stack are as they were there.
 *
 * Ground rules: guardlog.h's. All is in the arena. */
#include "guardyield.h"
#include "guardnote.h"
#include "guardsignal.h"
#include "guardsys.h"
#include "world.h"
#include <errno.h>
#include <linux/futex.h>

enum { LOGS = RS_GUARD_LOGS, REGISTERS = 6, WORDS = 64, SETTLED = 2 /* turns */, MOST = 64 /* turns for which a recording's end waits */ };
enum { MOST_NS = 20000000 /* likewise */, SLICE_NS = 100000, CPU_NS = 1000000 /* of who runs: it computes, and is not waited for any more */, TURN_NS = 100000000 /* nor who has no processor */, LEAST_NS = 200000000 };

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STORE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELEASE)

static const uint64_t what = RS_GUARD_WHAT(SYS_sched_yield, RS_GUARD_CALL);

static struct yields {
	uint32_t turn;             /* futex: 1 + the index of who has it */
	uint32_t stirs;            /* futex: raised by who is at the end, and has moved on */
	uint64_t begun, took;      /* ns: the recording */
	struct yielder {
		uint32_t made, again;      /* yields of the recording; of the re-execution */
		uint32_t at;               /* events that it had behind it in the recording when it yielded last */
		uint64_t spent;            /* ns: waiting there for turns that did not come */
		/* Where the recording ended: registers and stack, and was it settled? */
		uint64_t end;
		bool end_settled;
		uint32_t waits;            /* for its turn */
		/* From here on: at the end. That is where a recording is to end, or where one that is executed again did. */
		uint32_t is_at_end;
		uint32_t turns;            /* begun when all others stood */
		uint32_t settled;          /* so many, the last ones, changed nothing */
		uint32_t stays;            /* it takes no more */
		bool all_stood;            /* when its last turn began */
		uint32_t stirs;            /* then */
		uint64_t last, since;      /* registers and stack then; ns: of the first of them */
	} of[LOGS];
} *yields;

bool rs_guard_yield_plainly(struct rs_guard_log *t)
{
	struct yielder *y = yields ? &yields->of[t->index] : NULL;
	if (!y || !rs_guard_plainly(rs_guard_world()))
		return false;
	y->made++;
	STORE(y->at, t->at);
	if (RS_UNLIKELY(y->is_at_end))
		STORE(y->is_at_end, 0); /* of an end that was not to be had */
	return true;
}

/* --- turns ------------------------------------------------------------------------------------------------------------------------ */

/* Changes when anybody comes to a stand, or moves on at the end. */
static uint32_t stirs(void) { return LOAD(yields->stirs) + LOAD(rs_guard_world()->ended); }

/* Somebody else may be doing something. */
static const struct rs_guard_log *who_runs(const struct rs_guard_log *t)
{
	for (uint32_t i = 0, n = LOAD(rs_guard_world()->logs); i < n && i < LOGS; i++) {
		const struct rs_guard_log *o = rs_guard_log(i);
		if (o != t && LOAD(o->tid) && LOAD(o->state) == RS_GUARD_RUNS && !LOAD(yields->of[i].waits) && rs_world_lives(o->tid))
			return o;
	}
	return NULL;
}

/* Who waits for its turn after this one; 0: nobody. As `turn`. */
static uint32_t who_is_next(uint32_t than)
{
	uint32_t n = LOAD(rs_guard_world()->logs);
	n = n < LOGS ? n : LOGS;
	for (uint32_t k = 1; k < n; k++)
		if (LOAD(yields->of[(than + k) % n].waits))
			return 1 + (than + k) % n;
	return 0;
}

static void turn_is_over(const struct rs_guard_log *t)
{
	uint32_t mine = t->index + 1;
	if (LOAD(yields->turn) != mine)
		return;
	uint32_t next = who_is_next(t->index);
	__atomic_compare_exchange_n(&yields->turn, &mine, next, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
	if (next)
		RS_SYS3(SYS_futex, &yields->turn, FUTEX_WAKE_PRIVATE, INT32_MAX);
}

/* Of those who could, one at a time: this one, if it was given its turn, or nobody has it who uses it. */
static bool take_turn(const struct rs_guard_log *t)
{
	uint32_t who = LOAD(yields->turn);
	if (who == t->index + 1)
		return true;
	if (who && (LOAD(yields->of[who - 1].waits) || LOAD(rs_guard_log(who - 1)->state) == RS_GUARD_RUNS))
		return false;
	return __atomic_compare_exchange_n(&yields->turn, &who, t->index + 1, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

static void slice(struct rs_guard_log *t)
{
	struct timespec ts = {0};
	uint32_t seen = LOAD(yields->turn);
	RS_SYS2(SYS_clock_gettime, CLOCK_MONOTONIC, &ts);
	ts.tv_nsec += SLICE_NS;
	if (ts.tv_nsec >= 1000000000)
		ts.tv_nsec -= 1000000000, ts.tv_sec++;
	if (seen != t->index + 1)
		rs_guard_sleep_in_try(t, &yields->turn, seen, &ts);
	else
		rs_guard_sleep_in_try(t, &yields->stirs, LOAD(yields->stirs), &ts);
}

/* Does it last too long? A loop that counts its yields is to come to its end, too: of so many as there were, waits take no longer than all did. */
static bool is_over(const struct yielder *y, bool replay, uint64_t begun, uint64_t now)
{
	uint64_t most = yields->took > LEAST_NS ? yields->took : LEAST_NS;
	return now - begun > TURN_NS || (replay && y->again <= y->made && y->spent + (now - begun) > most);
}

static void await_turn(struct rs_guard_log *t, struct yielder *y, uint32_t gate)
{
	const struct rs_guard_world *w = rs_guard_world();
	const struct rs_guard_log *whom = NULL, *o;
	uint64_t begun = 0, cpu = 0, now = 0;
	bool replay = LOAD(w->mode) == RS_GUARD_REPLAY;
	__atomic_store_n(&y->waits, 1, __ATOMIC_SEQ_CST);
	turn_is_over(t);
	while (((o = who_runs(t)) || !take_turn(t)) && LOAD(w->gate) == gate && !(replay && LOAD(w->ending))) {
		now = rs_os_now_ns();
		begun = begun ? begun : now;
		bool computes = o && o == whom && rs_os_cpu_ns(o->tid) - cpu > CPU_NS;
		if (computes || is_over(y, replay, begun, now)) {
			y->spent += now - begun;
			break;
		}
		if (o && o != whom)
			whom = o, cpu = rs_os_cpu_ns(o->tid);
		slice(t);
	}
	STORE(y->waits, 0);
}

/* --- at the end --------------------------------------------------------------------------------------------------------------------- */

/* Of what the program knows where it yields. */
static uint64_t knows(uint64_t sp, const uint64_t *regs)
{
	const struct rs_thread *own = rs_thread_tls;
	uint64_t end = own && sp - own->stack_lo < own->stack_hi - own->stack_lo ? own->stack_hi : (sp | (RS_PAGE - 1)) + 1, hash = sp;
	for (unsigned i = 0; i < REGISTERS; i++)
		hash = (hash ^ regs[i]) * 0x9e3779b97f4a7c15ull, hash ^= hash >> 32;
	for (unsigned i = 0; i < WORDS && end - sp >= 8 * (i + 1); i++)
		hash = (hash ^ ((const uint64_t *)sp)[i]) * 0x9e3779b97f4a7c15ull, hash ^= hash >> 32;
	return hash;
}

bool rs_guard_yield_behind(const struct rs_guard_log *t)
{
	const struct yielder *y = yields ? &yields->of[t->index] : NULL;
	return y && LOAD(y->made) && LOAD(y->at) == LOAD(t->at);
}

bool rs_guard_yield_waits(const struct rs_guard_log *t, uint32_t *turns)
{
	if (!yields)
		return false;
	*turns = LOAD(yields->of[t->index].again);
	return LOAD(yields->of[t->index].waits);
}

/* But for those who take turns at the end, too. */
static bool others_stand(const struct rs_guard_log *t)
{
	for (uint32_t i = 0, n = LOAD(rs_guard_world()->logs); i < n && i < LOGS; i++) {
		const struct rs_guard_log *o = rs_guard_log(i);
		const struct yielder *y = &yields->of[i];
		uint32_t state = LOAD(o->state);
		if (o == t || !LOAD(o->tid) || state == RS_GUARD_ENDED || state == RS_GUARD_IN_CALL || state == RS_GUARD_KEPT || (LOAD(y->waits) && LOAD(y->is_at_end)))
			continue;
		if (rs_world_lives(o->tid))
			return false;
	}
	return true;
}

static bool is_stirred(const struct rs_guard_log *t) { return yields->of[t->index].stirs != stirs(); }

bool rs_guard_yield_stays(const struct rs_guard_log *t)
{
	return t->pending != what || !yields || LOAD(yields->of[t->index].stays) || !is_stirred(t);
}

static void stand(struct rs_guard_log *t, struct yielder *y, uint32_t gate, bool settled)
{
	if (rs_guard_mode() == RS_GUARD_RECORD)
		y->end = y->last, y->end_settled = settled;
	STORE(y->stays, !settled);
	turn_is_over(t);
	if (settled)
		rs_guard_stand_unless(t, SYS_sched_yield, RS_GUARD_CALL, gate, is_stirred, &yields->stirs);
	else
		rs_guard_stand(t, SYS_sched_yield, RS_GUARD_CALL, gate);
	STORE(y->stays, 0);
}

static void take_note(struct rs_guard_log *t, struct yielder *y, uint64_t knows)
{
	if (!y->is_at_end) {
		y->turns = y->settled = y->all_stood = 0;
	} else if (knows != y->last) {
		y->settled = 0;
		__atomic_fetch_add(&yields->stirs, 1, __ATOMIC_SEQ_CST);
		RS_SYS3(SYS_futex, &yields->stirs, FUTEX_WAKE_PRIVATE, INT32_MAX);
	} else
		y->settled = y->all_stood && others_stand(t) && !is_stirred(t) ? y->settled + 1 : 0;
	y->last = knows;
	STORE(y->is_at_end, 1);
}

/* It should have come to where it stood. */
static bool is_late(const struct yielder *y)
{
	enum { TIMES = 10, SOONEST_NS = 100000000 };
	return rs_os_now_ns() - y->since > TIMES * yields->took + SOONEST_NS;
}

/* True: it has stood, and looks again; false: it takes another turn. */
static bool at_end(struct rs_guard_log *t, struct yielder *y, uint64_t knows, uint32_t gate)
{
	bool replay = rs_guard_mode() == RS_GUARD_REPLAY, settled, enough;
	take_note(t, y, knows);
	settled = y->settled >= SETTLED;
	enough = replay ? y->turns > MOST + y->made && is_late(y) : y->turns > MOST || (y->turns && rs_os_now_ns() - y->since > MOST_NS);
	if (!settled && !enough && !(replay && !y->end_settled && knows == y->end))
		return false;
	stand(t, y, gate, settled);
	return true;
}

static void begin_turn(struct rs_guard_log *t, struct yielder *y, uint32_t gate)
{
	await_turn(t, y, gate);
	y->stirs = stirs();
	y->all_stood = others_stand(t);
	if (y->all_stood && y->turns++ == 0)
		y->since = rs_os_now_ns();
}

/* --- the call ------------------------------------------------------------------------------------------------------------------------- */

/* regs: the program's that functions keep. */
long rs_guard_yield(struct rs_call *c, const uint64_t *regs) RS_HIDDEN;
long rs_guard_yield(struct rs_call *c, const uint64_t *regs)
{
	const struct rs_guard_world *w = rs_guard_world();
	const uint64_t sp = (uintptr_t)c + RS_CALL_FRAME;
	struct rs_guard_log *t;
	c->result = 0;
	while ((t = rs_guard_self()) && rs_guard_mode() != RS_GUARD_OFF && !t->outside) {
		struct yielder *y = &yields->of[t->index];
		uint32_t gate = LOAD(w->gate);
		bool replay = LOAD(w->mode) == RS_GUARD_REPLAY, ending = LOAD(w->ending);
		t->sp = sp;
		if (rs_guard_signals(t, what))
			continue;
		if (!replay && !ending)
			break;
		if (replay && ending) { /* it went another way */
			STORE(y->stays, 1);
			rs_guard_stand(t, SYS_sched_yield, RS_GUARD_CALL, gate);
			continue;
		}
		if (replay)
			STORE(y->again, y->again + 1);
		if (replay && (t->at != t->end || t->pending_end != what)) {
			STORE(y->is_at_end, 0);
			await_turn(t, y, gate);
			break;
		}
		if (at_end(t, y, knows(sp, regs), gate))
			continue;
		begin_turn(t, y, gate);
		break;
	}
	RS_SYS0(SYS_sched_yield);
	rs_guard_leave_frame(c);
	rs_guard_sys_signals(c, sp);
	return 0;
}

__asm__(".text\n.p2align 4\n.globl rs_guard_yields\n.hidden rs_guard_yields\n.type rs_guard_yields, @function\n"
	"rs_guard_yields:\n"
	".cfi_startproc\n"
	"	subq $8, %rsp\n"
	".cfi_adjust_cfa_offset 8\n"
	/* rs_hook_c has its frame there, with the program's. */
	"	pushq (%rbp)\n	pushq %rbx\n	pushq %r12\n	pushq %r13\n	pushq %r14\n	pushq %r15\n"
	".cfi_adjust_cfa_offset 48\n"
	"	movq %rsp, %rsi\n"
	"	call rs_guard_yield\n"
	"	addq $56, %rsp\n"
	".cfi_adjust_cfa_offset -56\n"
	"	ret\n"
	".cfi_endproc\n"
	".size rs_guard_yields, .-rs_guard_yields\n");
_Static_assert(REGISTERS == 6, "as many as are pushed");

/* --- the coordinator -------------------------------------------------------------------------------------------------------------------- */

long rs_guard_yields_begin(void)
{
	yields = rs_guard_map(RS_ARENA_OWN, sizeof *yields);
	return yields ? 0 : -ENOMEM;
}

bool rs_guard_yields_left(uint64_t *turns)
{
	bool left = false;
	*turns = 0;
	for (uint32_t i = 0, n = yields ? rs_guard_world()->logs : 0; i < n; i++) {
		*turns += LOAD(yields->of[i].again);
		left = left || LOAD(yields->of[i].again) < LOAD(yields->of[i].made);
	}
	return left;
}

void rs_guard_yields_new(void)
{
	if (!yields)
		return;
	for (uint32_t i = 0; i < rs_guard_world()->logs; i++)
		yields->of[i] = (struct yielder){0};
	yields->turn = 0;
	yields->begun = rs_os_now_ns();
}

void rs_guard_yields_back(void)
{
	if (!yields)
		return;
	if (rs_guard_mode() == RS_GUARD_RECORD)
		yields->took = rs_os_now_ns() - yields->begun;
	for (uint32_t i = 0; i < rs_guard_world()->logs; i++) {
		const struct yielder was = yields->of[i];
		yields->of[i] = (struct yielder){.made = was.made, .end = was.end, .end_settled = was.end_settled};
	}
	yields->turn = 0;
}
