/* guarddebug.h: debug registers of the program's threads, set by Go where the kernel refuses breakpoints by perf. guarddebug.c; see docs/decisions.md, 49. */
#ifndef RS_GUARDDEBUG_H
#define RS_GUARDDEBUG_H
#include "guard.h"
#include <signal.h>

/* Coordinator only.
 *
 * Before the first checkpoint. -ENOMEM. */
long rs_guard_debug_begin(void) RS_HIDDEN;
/* The world is stopped: a write to these 1, 2, 4 or 8 aligned bytes by any thread but ours is a SIGTRAP of that thread, behind the instruction. 0, or a negative errno, of Go or: -ESRCH: there is no session; -ETIMEDOUT: nobody answers. */
long rs_guard_debug_set(uint64_t address, uint32_t bytes) RS_HIDDEN;
/* None is on any more. Of who cannot be asked they stay on: then their traps do nothing. */
void rs_guard_debug_clear(void) RS_HIDDEN;
/* Memory has gone back, or forward, or other signals are forced on threads than before (guardpage.c). */
void rs_guard_debug_again(void) RS_HIDDEN;

/* On a thread of the program: a trap of debug registers. True: we had them set; *now: they are set, and not left over. */
bool rs_guard_debug_trap(const siginfo_t *info, bool *now) RS_HIDDEN;
#endif
