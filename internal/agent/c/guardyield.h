/* guardyield.h: sched_yield in an epoch of `guard`: no event, but a place where a thread may stand. guardyield.c; see guardlog.h, and docs/decisions.md, 59. */
#ifndef RS_GUARDYIELD_H
#define RS_GUARDYIELD_H
#include "calls.h"
#include "guardlog.h"

/* Before the first checkpoint. -ENOMEM. */
long rs_guard_yields_begin(void) RS_HIDDEN;
/* World stopped: a new epoch; a re-execution begins. */
void rs_guard_yields_new(void) RS_HIDDEN;
void rs_guard_yields_back(void) RS_HIDDEN;

/* --- on threads of the program, general registers only ---------------------------------------------------------------------- */

/* Of a yield in a recording of which no end is asked for: true: it is counted, and to be made. False: rs_guard_yields is to be called. */
bool rs_guard_yield_plainly(struct rs_guard_log *t) RS_HIDDEN;
/* Not a C function, for the hook, which calls it as rs_call_before; always 0: it is done. */
extern char rs_guard_yields[] RS_HIDDEN;

/* RECORD: has it yielded since its last event? */
bool rs_guard_yield_behind(const struct rs_guard_log *t) RS_HIDDEN;
/* REPLAY: does it wait for its turn to go on behind a yield? turns: how often it has yielded. */
bool rs_guard_yield_waits(const struct rs_guard_log *t, uint32_t *turns) RS_HIDDEN;

/* --- the coordinator ---------------------------------------------------------------------------------------------------------- */

/* REPLAY: how often threads have yielded, in all; true: one of them less often than in the recording. */
bool rs_guard_yields_left(uint64_t *turns) RS_HIDDEN;
/* A thread that stands before a yield: is it to stay there, as far as is known? */
bool rs_guard_yield_stays(const struct rs_guard_log *t) RS_HIDDEN;
#endif
