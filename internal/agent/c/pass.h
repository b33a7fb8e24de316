/* pass.h: the thread that stands before an instruction gets past it without a patch: a copy of it is executed elsewhere. For who asked for a patch (patch.h) and does not have it. */
#ifndef RS_PASS_H
#define RS_PASS_H
#include "core.h"
#include <ucontext.h>

/* DONE: the context, when it is restored, goes on behind the instruction at which it stands, or faults there for the program to see. AGAIN: the text there is being changed: whoever goes back there comes again.
 * NOT: the instruction cannot be executed elsewhere (rs_displace; but jumps and conditional ones are), or there is no memory within its reach; the caller has other ways, such as to have it stepped. */
enum rs_pass { RS_PASS_DONE, RS_PASS_AGAIN, RS_PASS_NOT };
/* In a handler of the agent's, with all signals blocked up to its end; SIGTRAP may come. */
enum rs_pass rs_pass(ucontext_t *uc) RS_HIDDEN;

/* Where a thread is for the program that is at pc in such a copy; 0: it is in none. */
uintptr_t rs_pass_place(uintptr_t pc) RS_HIDDEN;
void rs_pass_after_fork(void) RS_HIDDEN;

/* Address space within an instruction's reach of the site, away from what the program may want; 0: there is none. */
uintptr_t rs_pass_reserve(uintptr_t site, size_t bytes) RS_HIDDEN;
/* A jump by a distance that lies at the site: its length, and where it leads in *to; 0: it is none. */
unsigned rs_pass_jump(const uint8_t *code, uintptr_t site, uint64_t flags, uintptr_t *to) RS_HIDDEN;
#endif
