/* guardtry_core.h: what guardstamp.c (a recording notes where threads were) and guardtry.c (a re-execution waits until they are there) share: guardtry.h's state, in the arena. */
#ifndef RS_GUARDTRY_CORE_H
#define RS_GUARDTRY_CORE_H
#include "guardtry.h"

enum { LOGS = RS_GUARD_LOGS, STAMPS = 1 << 16, MARKS = 1 << 22, NOBODY = UINT32_MAX };

/* A wait's beginning or end, by the processor's time; event: the log's; logs: so many marks, from first on. */
struct stamp { uint64_t ticks; uint32_t event, over : 1, logs : 9, first : 22; };
/* Where another thread was then, as rs_guard_try_place gives it. done: not later than that. begun: not earlier than when all of the stamp's `done` had been read, so that none of these can have needed what this thread did next.
 * looks: it had looked and yielded since its last event, perhaps many times. */
struct mark { uint32_t done, begun, looks; };
struct line {
	struct stamp *stamp;
	uint32_t stamps, at;       /* at: REPLAY: those that are behind it */
	uint32_t held;             /* stands before its next event, for the cut */
	uint32_t lets;             /* stands behind its last event, for the crash's thread to pass */
	uint32_t owes;             /* REPLAY: stands there only when it has given back what that event took */
	uint32_t acts, acts_at;    /* REPLAY: of who does what it is its turn to do, while this one lets another pass: its log's index, from 1, and its place */
	uint64_t acts_ms;          /* since when */
	uint32_t arrived;          /* REPLAY: the last act before which it was: its place then, with its lowest bit set */
	uint32_t awaited;          /* REPLAY: somebody waits until it is there: a place, with its lowest bit set; 0: nobody */
	uint32_t fresh;            /* REPLAY: has a wait behind it, and perhaps not yet what the program did then */
	bool slept;                /* its last stamp is of a wait of ours */
	uint64_t cpu, base;        /* ns: its own at the last wait's end; REPLAY: another's, for whom it waits */
	uint32_t base_turns;       /* REPLAY: likewise, how often that one had yielded */
	uint64_t chance;
};
/* Where all threads were when this one was behind `at` events; inside: in the event that comes next; run: how often the event before that had been done, if more of it came; born: there was one. */
struct cut { uint32_t who, at, other[LOGS]; uint16_t run[LOGS]; uint8_t inside[LOGS], born[LOGS]; };

struct tries {
	uint32_t crasher, sig;     /* its log's index, or NOBODY */
	uint64_t pc, ticks;
	uint32_t crossed;          /* REPLAY: it has crashed */
	uint32_t passes, pass;     /* REPLAY: this thread comes to this stamp, less one, of its own before who was between two events there goes on from the first; pass 0: none does */
	uint32_t blocked;          /* some of what the others did up to the cut they did behind its last event: it does not wait for them there */
	uint32_t ordered;          /* REPLAY: waits and cut count */
	uint32_t way, failed, gave_up;
	uint32_t moved;            /* futex */
	uint64_t begun, from, again; /* ticks: the epoch; its last SLEPT_MS; and those in the re-execution, 0: they have not begun */
	uint64_t excursion_ms;
	uint32_t marks;
	struct rs_arena_use use;   /* of marks */
	struct mark *mark;
	struct stamp *stamp;       /* of all lines, which have none before their first */
	struct rs_guard_came came;
	struct cut crash, differs;
	struct line line[LOGS];
};
extern struct tries *rs_guard_tries RS_HIDDEN;

#define LOAD(x) __atomic_load_n(&(x), __ATOMIC_ACQUIRE)
#define STORE(x, v) __atomic_store_n(&(x), (v), __ATOMIC_RELEASE)

static inline uint64_t ticks(void)
{
	uint32_t lo, hi;
	__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi) : : "memory");
	return (uint64_t)hi << 32 | lo;
}

/* How many acts a thread has done, in the order in which it does them: alike in recording and re-execution, in which runs have their final length. An even number. */
uint32_t rs_guard_try_place(const struct rs_guard_log *t) RS_HIDDEN;
static inline uint32_t events_at(uint32_t place) { return place ? (place >> 10) + 1 : 0; }
#endif
