/* guardkept.h: descriptors of files that were read in an epoch and closed by the program, kept open for its re-execution: guardkept.c. See guardsys.h. */
#ifndef RS_GUARDKEPT_H
#define RS_GUARDKEPT_H
#include "calls.h"
#include "guard.h"

/* Before the first checkpoint. -ENOMEM. */
long rs_guard_kept_begin(void) RS_HIDDEN;
/* A duplicate of a descriptor that is about to be closed, until the epoch ends. Negative errno: there can be none. In an event. */
long rs_guard_kept_add(int32_t fd) RS_HIDDEN;
/* Coordinator, world stopped, nobody in an event: another epoch begins. */
void rs_guard_kept_epoch(void) RS_HIDDEN;
/* By threads of the program: closes what is of no epoch any more. */
void rs_guard_kept_drop(void) RS_HIDDEN;
/* The epoch is lost: closes all. */
void rs_guard_kept_drop_all(void) RS_HIDDEN;

/* The call is about to be made, whatever the mode: it may bind a lock to the open file. */
void rs_guard_kept_sees(const struct rs_call *c) RS_HIDDEN;
/* It takes a lock that goes when any descriptor of the file is closed. */
static inline bool rs_guard_kept_matters(const struct rs_call *c) { return c->number == SYS_fcntl && (c->arg[1] == 6 /* F_SETLK */ || c->arg[1] == 7 /* F_SETLKW */); }
/* Of this file there is a duplicate (of this epoch: those of older ones are closed when this is over). */
bool rs_guard_kept_has(int32_t fd) RS_HIDDEN;
#endif
