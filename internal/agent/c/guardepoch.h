/* guardepoch.h: what guardepoch.c and guard.c share. */
#ifndef RS_GUARDEPOCH_H
#define RS_GUARDEPOCH_H
#include "guardlog.h"

/* What the coordinator is asked to do. END: the epoch ends; AGAIN: and is executed again; SOON: it ends when that does not cost too much. */
enum { RS_GUARD_ASK_NOTHING, RS_GUARD_ASK_CHECKPOINT, RS_GUARD_ASK_ROLLBACK, RS_GUARD_ASK_STOP, RS_GUARD_ASK_AGAIN, RS_GUARD_ASK_END, RS_GUARD_ASK_SOON };
/* A futex, in the arena; in a session in the region, where Go asks too (RS_GUARD_LOOK): so it is a shared one. NULL before guard begins. */
extern uint32_t *rs_guard_request RS_HIDDEN;

/* The coordinator, the log, system calls, and the first checkpoint. */
long rs_guard_begin_session(bool every, bool queues, uint32_t ms) RS_HIDDEN;
bool rs_guard_coordinator_lives(void) RS_HIDDEN;
/* Coordinator: the session is over, which the process outlives: nobody will ask, and none is recorded any more. */
void rs_guard_close(void) RS_HIDDEN;
/* The process has no task but this thread. */
bool rs_guard_alone(void) RS_HIDDEN;
/* On the thread that called rs_guard_begin_session, which has failed, in a forked child: all is as if it had not been called. */
void rs_guard_undo(void) RS_HIDDEN;
/* Epochs begin at the process's second thread (rs_guard_fork_put_off), by the thread that makes it, which is so deep in what no epoch can follow. */
void rs_guard_session_late(uint32_t outside) RS_HIDDEN;
/* Config.Guard's: how long an epoch lasts. */
uint32_t rs_guard_epoch_ms(uint32_t word) RS_HIDDEN;
/* guardcause.c: evidence of the heap, and crashes, are looked into from now on. False: no memory. */
bool rs_guard_cause_begin(void) RS_HIDDEN;
#endif
