/* guardfault.h: who has the signals of faults while an epoch is executed again: guardfault.c. */
#ifndef RS_GUARDFAULT_H
#define RS_GUARDFAULT_H
#include "guard.h"

/* Before the first checkpoint. -ENOMEM. */
long rs_guard_faults_begin(void) RS_HIDDEN;
/* The process is about to die of this; the epoch may be executed again to look into it, and ends by nothing else from here on, if that is true, until rs_guard_crashed. The first that the signal's handler calls: where it is before that there is no end either (RS_GUARD_ARRIVES). */
bool rs_guard_crashes(int sig, const greg_t *g) RS_HIDDEN;
void rs_guard_crashed(void) RS_HIDDEN;
/* Coordinator, the world stopped: they are ours from here on, until they are again whose they were. */
void rs_guard_faults_take(void) RS_HIDDEN;
void rs_guard_faults_back(void) RS_HIDDEN;
#endif
