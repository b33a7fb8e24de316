/* guardfault.h: who has the signals of faults while an epoch is executed again, and what is executed again where a handler of the program's has one: guardfault.c. */
#ifndef RS_GUARDFAULT_H
#define RS_GUARDFAULT_H
#include "guardlog.h"
#include <ucontext.h>

/* Before the first checkpoint. -ENOMEM. */
long rs_guard_faults_begin(void) RS_HIDDEN;
/* The process is about to die of this; the epoch may be executed again to look into it, and ends by nothing else from here on, if that is true, until rs_guard_crashed. The first that the signal's handler calls: where it is before that there is no end either (RS_GUARD_ARRIVES). second: another thread crashed before, and is to tell. */
bool rs_guard_crashes(int sig, const greg_t *g, bool *second) RS_HIDDEN;
void rs_guard_crashed(void) RS_HIDDEN;
/* Of one that crashed, by a fault at pc, while another tells, from time to time: if an epoch is to end, the thread is at its end there, and stands. */
void rs_guard_crash_stands(uint64_t pc) RS_HIDDEN;
/* --- faults of which a handler of the program's is told -----------------------------------------------------------------------------------
 * What such a handler does is not followed. But the epoch can be executed again up to the fault: if the process dies of it that is done, and if the program goes on the epoch is lost. Until one of them is known it does not end but where it must
 * (rs_guard_put_off). Threads' logs go on behind the fault, since what its thread needs of theirs may be written down behind it; where one of them does what no epoch can follow its log is cut. */

/* RECORD, on the thread, all signals blocked, before the handler. False: the epoch is lost. */
bool rs_guard_fault_comes(struct rs_guard_log *t, int sig, const siginfo_t *info, const ucontext_t *uc) RS_HIDDEN;
/* On the thread: a handler for such a signal begins; or returns, to these registers. */
void rs_guard_fault_handled(int sig, const ucontext_t *uc, bool begins) RS_HIDDEN;
/* On the thread: the process dies, and what is told is this. If that is the fault, the next re-execution that the thread asks for goes up to it. */
void rs_guard_fault_asks(int sig, const siginfo_t *info, const greg_t *g) RS_HIDDEN;
/* Coordinator, an epoch's end is asked for by who has crashed, and not all come to it: it is executed again up to that fault. False: there was none. */
bool rs_guard_fault_only(void) RS_HIDDEN;
/* On any thread, instead of losing the epoch: the log of this one is cut. False: it is lost all the same. */
bool rs_guard_fault_cuts(uint32_t why) RS_HIDDEN;
/* RECORD: the epoch is to end all the same: it is lost. */
void rs_guard_fault_drop(void) RS_HIDDEN;
/* What is behind the cut is nobody's: the log has room again. */
void rs_guard_fault_again(struct rs_guard_log *t) RS_HIDDEN;
/* REPLAY: where this log ends is no end of the thread's. */
bool rs_guard_fault_behind(const struct rs_guard_log *t) RS_HIDDEN;
/* Coordinator: has the program gone on? Then the epoch is lost. And: for so many ns nothing is to be done but where somebody asks; 0: there is no such handler. */
void rs_guard_fault_look(void) RS_HIDDEN;
uint64_t rs_guard_fault_lasts(void) RS_HIDDEN;
/* World stopped, the epoch recorded: the log's end. */
void rs_guard_fault_end(struct rs_guard_log *t) RS_HIDDEN;

/* Coordinator, the world stopped: they are ours from here on, until they are again whose they were. */
void rs_guard_faults_take(void) RS_HIDDEN;
void rs_guard_faults_back(void) RS_HIDDEN;
#endif
