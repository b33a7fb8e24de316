/* guardtry.h: what orders a re-execution's threads beyond their logs, so that races come out as they did, and its tries. guardtry.c, guardstamp.c; see guardlog.h, and docs/decisions.md, 52.
 *
 * In a nutshell. Logs order what threads do with the same object. What they do to each other's memory without one is ordered by four things more, none of which costs a recording anything but where a thread waits in the kernel anyway. *Waits*: a call
 * that may wait has the processor's time before and behind it; a re-execution gives its result when all that other threads' waits have earlier is behind them. *Marks*, with few threads: at a wait's beginning and end it is written down how far
 * the others have come; the result is given when they are there, and who is there does no more before it is; what the crash came of was not done yet when its thread came to its last wait, if that crashed right behind it. *The cut*: where all threads were when one crashed; in a re-execution they do not go on from
 * there before it has crashed, and it does not begin with what comes behind its last event before they are there. *Tries*: if it went another way all the same, the next one delays the thread that did, or the others, before that place, and lets waits
 * take as long as they took. All of it waits for a while only: it may be impossible, since what happened between events is not known. */
#ifndef RS_GUARDTRY_H
#define RS_GUARDTRY_H
#include "guardlog.h"

enum { RS_GUARD_TRIES = 8 /* of one re-execution */ };

/* What came of the last excursion. */
struct rs_guard_came {
	bool crash;                /* it was for one */
	uint32_t tries;            /* the re-execution, from 1, that was the first to come to the crash: the same signal, instruction and thread, and all events the same; 0: none was */
	uint32_t made;             /* re-executions, with those that looked into it */
	uint32_t why;              /* enum rs_guard_why: of that one, or of the last: memory may differ all the same */
};
const struct rs_guard_came *rs_guard_came(void) RS_HIDDEN;

/* --- on threads of the program, general registers only ------------------------------------------------------------------------------------ */

/* RECORD: the call that is the thread's next event may wait, and is about to be made; it is over. */
void rs_guard_try_wait(struct rs_guard_log *t, bool over) RS_HIDDEN;
/* RECORD: likewise of a wait of ours before that event. */
void rs_guard_try_sleep(struct rs_guard_log *t, bool over) RS_HIDDEN;
/* RECORD: the process is about to die of this. REPLAY: true: of that. */
bool rs_guard_try_crash(struct rs_guard_log *t, int sig, uint64_t pc) RS_HIDDEN;
/* REPLAY: the thread stands where its log ends: it has crashed, if that was an abort. */
void rs_guard_try_aborts(const struct rs_guard_log *t) RS_HIDDEN;
/* RECORD: the epoch's crash is another thread's. */
bool rs_guard_try_other_crash(const struct rs_guard_log *t) RS_HIDDEN;
/* REPLAY: it has. */
bool rs_guard_try_crashed(void) RS_HIDDEN;
/* REPLAY: the thread waits for what its next event needs. */
void rs_guard_try_arrive(struct rs_guard_log *t) RS_HIDDEN;
/* REPLAY: before the thread's next event; in the call that is that event, when its result is to be given; and behind an event. */
void rs_guard_try_before(struct rs_guard_log *t) RS_HIDDEN;
void rs_guard_try_waited(struct rs_guard_log *t) RS_HIDDEN;
void rs_guard_try_behind(struct rs_guard_log *t) RS_HIDDEN;
/* This thread has given back what an event took. */
void rs_guard_try_gave(void) RS_HIDDEN;
/* REPLAY: the first difference is this thread's. */
void rs_guard_try_diverged(const struct rs_guard_log *t) RS_HIDDEN;

/* --- the coordinator ------------------------------------------------------------------------------------------------------------------------ */

/* Before the first checkpoint. -ENOMEM. */
long rs_guard_try_begin(void) RS_HIDDEN;
/* World stopped: a new epoch. */
void rs_guard_try_new(void) RS_HIDDEN;
/* World stopped, the epoch recorded: an excursion begins. */
void rs_guard_try_excursion(void) RS_HIDDEN;
/* World stopped, after a rollback: a re-execution begins. */
void rs_guard_try_back(void) RS_HIDDEN;
/* Did this one, of which that is the verdict, do all that it is for? */
bool rs_guard_try_came(uint32_t why) RS_HIDDEN;
/* It is over. True: it is to be made again as it was, but for delays. */
bool rs_guard_try_more(uint32_t why, uint32_t made) RS_HIDDEN;
/* No more is to be made: there were as many as are made. */
bool rs_guard_try_gave_up(void) RS_HIDDEN;
/* One came out, and those that look into it have had their time. */
bool rs_guard_try_long(void) RS_HIDDEN;
#endif
