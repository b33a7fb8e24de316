/* guardkept.h: files that were read in an epoch and closed by the program, kept open for its re-execution: guardkept.c. See guardsys.h. */
#ifndef RS_GUARDKEPT_H
#define RS_GUARDKEPT_H
#include "calls.h"
#include "guard.h"
#include <fcntl.h>

/* Before the first checkpoint. -ENOMEM. */
long rs_guard_kept_begin(void) RS_HIDDEN;

/* By threads of the program, in an event or outside. A file that is about to be closed, until the epoch ends: its descriptor, which is the coordinator's. Negative errno: it cannot be kept. place: it is opened again when it is needed. */
long rs_guard_kept_add(int32_t fd, bool place) RS_HIDDEN;
/* The call, made by the coordinator, with its descriptors. */
long rs_guard_kept_call(const struct rs_call *c) RS_HIDDEN;
/* The epoch is lost: all are closed when this is over. */
void rs_guard_kept_drop(void) RS_HIDDEN;
/* The coordinator answers no more: who asks is told so. */
void rs_guard_kept_shut(void) RS_HIDDEN;

/* It may bind a lock to the open file. */
static inline bool rs_guard_kept_matters(const struct rs_call *c) { return c->number == SYS_flock || (c->number == SYS_fcntl && (c->arg[1] == F_OFD_SETLK || c->arg[1] == F_OFD_SETLKW || c->arg[1] == F_SETLEASE)); }
/* The call is about to be made, whatever the mode. */
void rs_guard_kept_sees(const struct rs_call *c) RS_HIDDEN;
/* This file is kept in this epoch. */
bool rs_guard_kept_has(int32_t fd) RS_HIDDEN;

/* Coordinator. */
/* It answers from now on. task: its /proc/self/task. */
void rs_guard_kept_open(int task) RS_HIDDEN;
/* What threads ask, if they do; wherever it waits for who may have asked. */
void rs_guard_kept_answer(void) RS_HIDDEN;
/* World stopped, nobody in an event: another epoch begins. */
void rs_guard_kept_epoch(void) RS_HIDDEN;
/* World stopped, and all threads are elsewhere when they go on: nobody has asked. */
void rs_guard_kept_back(void) RS_HIDDEN;
#endif
