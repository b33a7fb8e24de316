/* guardstack.h: the kernel has an alternate stack of ours for each thread, so that what it writes for a signal is not on the program's, and what the program has set is kept and shown to it. guardstack.c; docs/decisions.md, 50. */
#ifndef RS_GUARDSTACK_H
#define RS_GUARDSTACK_H
#include "guardlog.h"
#include <signal.h>

/* Before other threads, in a session. -ENOMEM. */
long rs_guard_stack_begin(void) RS_HIDDEN;
/* A forked child's thread with this stack pointer: neither it nor the kernel is on one of those that its parent had, nor on the program's own. */
bool rs_guard_stack_free(uintptr_t sp) RS_HIDDEN;
/* On the thread: the kernel has ours from here on, if the thread is not on its own just now. */
void rs_guard_stack_take(struct rs_guard_log *t) RS_HIDDEN;
/* Ours of that log, or none. */
stack_t rs_guard_stack_of(const struct rs_guard_log *t) RS_HIDDEN;
/* It lies on one of ours. */
bool rs_guard_stack_has(uintptr_t p) RS_HIDDEN;
/* So it is on this thread. */
bool rs_guard_stack_taken(void) RS_HIDDEN;
/* What a frame says of the alternate stack: the program's, where the kernel has ours. */
void rs_guard_stack_show(stack_t *s) RS_HIDDEN;
/* A frame as the kernel makes one: of so many bytes, and its registers. */
struct rs_guard_frame { uint64_t bytes, fp_bytes, at, fp; };
/* Where it comes for a handler that is run with the stack pointer at sp; on_stack: its action has SA_ONSTACK. False: the kernel would have found no room for it. */
bool rs_guard_stack_enters(uint64_t sp, bool on_stack, struct rs_guard_frame *f) RS_HIDDEN;
/* Of one at the top of that stack: on a small one its registers lie elsewhere. */
void rs_guard_stack_small(const struct rs_guard_log *t, const stack_t *s, struct rs_guard_frame *f) RS_HIDDEN;
/* A handler begins with this context: it is shown the program's stack. It has returned: what the context says counts, and rt_sigreturn is to leave the kernel its own. */
void rs_guard_stack_began(ucontext_t *uc) RS_HIDDEN;
void rs_guard_stack_over(ucontext_t *uc) RS_HIDDEN;
/* Handlers of this signal are to be entered on it (SA_ONSTACK), whether the program asks for that or not. */
bool rs_guard_stack_wanted(int sig) RS_HIDDEN;
/* In a forked child, whose handlers are where the kernel puts them from now on. */
void rs_guard_stack_forget(void) RS_HIDDEN;
/* In the constructor: rs_guard_stack_begin comes later, when the program may have handlers and a stack of its own. */
void rs_guard_stack_put_off(void) RS_HIDDEN;
/* Of a handler that an event runs, what is of our functions and not the same in a re-execution: the registers in the frame that was made for it (where they begin; xmm: the sixteen), and the words between it and the program's own frames. */
struct rs_guard_within { uint64_t gregs, xmm, lo, hi; };
/* On the thread, before the handler; and when it has returned. */
void rs_guard_stack_enter(const struct rs_guard_log *t, const struct rs_guard_within *w) RS_HIDDEN;
void rs_guard_stack_leave(const struct rs_guard_log *t, uint64_t gregs) RS_HIDDEN;
/* Coordinator, world stopped: those whose handlers have not been left, from 0 on. False: no more. */
bool rs_guard_stack_within(const struct rs_guard_log *t, uint32_t *i, struct rs_guard_within *w) RS_HIDDEN;
/* On the thread, where the kernel has the program's: this is it now. */
void rs_guard_stack_is(const stack_t *s) RS_HIDDEN;
struct rs_call;
/* sigaltstack, on the thread: as the kernel would answer if there were none of ours. done: it is known to have returned 0. */
long rs_guard_stack_call(const struct rs_call *c, bool done) RS_HIDDEN;
#endif
