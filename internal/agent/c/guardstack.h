/* guardstack.h: an alternate stack of ours for each thread that has none, so that what the kernel writes for a signal is not on the program's. guardstack.c; docs/decisions.md, 50. */
#ifndef RS_GUARDSTACK_H
#define RS_GUARDSTACK_H
#include "guardlog.h"
#include <signal.h>

/* Before other threads, in a session. -ENOMEM. */
long rs_guard_stack_begin(void) RS_HIDDEN;
/* On the thread: it has ours, if it has none. */
void rs_guard_stack_take(const struct rs_guard_log *t) RS_HIDDEN;
/* Ours of that log, or none. */
stack_t rs_guard_stack_of(const struct rs_guard_log *t) RS_HIDDEN;
/* It lies on one of ours. */
bool rs_guard_stack_has(uintptr_t p) RS_HIDDEN;
/* The program has none where ours is in use. */
void rs_guard_stack_show(stack_t *s) RS_HIDDEN;
/* Handlers of this signal are to be entered on it (SA_ONSTACK), whether the program asks for that or not. */
bool rs_guard_stack_wanted(int sig) RS_HIDDEN;
/* In a forked child, whose handlers are where the kernel puts them from now on. */
void rs_guard_stack_forget(void) RS_HIDDEN;
/* The program has one of its own. True. */
bool rs_guard_stack_set(void) RS_HIDDEN;
/* Of a handler that an event runs, what is of our functions and not the same in a re-execution: the registers in the frame that was made for it (where they begin; xmm: the sixteen), and the words between it and the program's own frames. */
struct rs_guard_within { uint64_t gregs, xmm, lo, hi; };
/* On the thread, before the handler; and when it has returned. */
void rs_guard_stack_enter(const struct rs_guard_log *t, const struct rs_guard_within *w) RS_HIDDEN;
void rs_guard_stack_leave(const struct rs_guard_log *t, uint64_t gregs) RS_HIDDEN;
/* Coordinator, world stopped: those whose handlers have not been left, from 0 on. False: no more. */
bool rs_guard_stack_within(const struct rs_guard_log *t, uint32_t *i, struct rs_guard_within *w) RS_HIDDEN;
/* On the thread: this is the program's now. */
void rs_guard_stack_is(const stack_t *s) RS_HIDDEN;
struct rs_call;
/* sigaltstack, on the thread: as the kernel would answer if there were none of ours. */
long rs_guard_stack_call(const struct rs_call *c) RS_HIDDEN;
#endif
