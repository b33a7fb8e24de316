/* guardfork.h: epochs of forked children, which begin when it shows that they live: guardfork.c. */
#ifndef RS_GUARDFORK_H
#define RS_GUARDFORK_H
#include "calls.h"
#include "guard.h"

/* Not 0: a forked child of a process that was recorded, or of such a child, which is not recorded yet; or what has one thread yet, and is to be recorded from its second on. */
extern uint32_t rs_guard_young RS_HIDDEN;
/* Of the thread, where rs_guard_young is set: so deep it is in what no epoch can follow (rs_guard_out): none begins there. */
extern __thread uint32_t rs_guard_young_outside __attribute__((tls_model("initial-exec"), visibility("hidden")));
/* In the constructor: the process is recorded from its second thread on (rs_patch_put_off), and its forked children. */
void rs_guard_fork_put_off(void) RS_HIDDEN;
/* On the thread that forks, when the epoch knows of it; and in the child, when all else is what it is to be in a child. */
void rs_guard_fork_begins(void) RS_HIDDEN;
void rs_guard_fork_child(void) RS_HIDDEN;
/* A module has been loaded, which has its headers there. */
void rs_guard_fork_loads(uintptr_t base, uintptr_t bias) RS_HIDDEN;
/* The thread is about to make another one, or, where rs_guard_young is set, a call is over: the first epoch may begin here. sp: the program's stack pointer. */
void rs_guard_fork_creates(uintptr_t sp) RS_HIDDEN;
void rs_guard_fork_called(const struct rs_call *c) RS_HIDDEN;
#endif
