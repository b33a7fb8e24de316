/* guardbreak.h: breakpoints in software, for threads of a re-execution: int3 in the program's text, for where the processor's are refused, or never hit. guardbreak.c; for guardstep.c.
 *
 * In a nutshell. The coordinator writes and takes them out, by /proc/self/mem; threads only meet them. Nobody takes one out to get past it: whoever has met it goes on in a copy of the instruction that lies elsewhere (its *slot*), or, if that says where control
 * goes on, is brought there by the handler. So no thread slips by while another one passes. Text is not what a rollback or a comparison looks at. */
#ifndef RS_GUARDBREAK_H
#define RS_GUARDBREAK_H
#include "guard.h"

enum { RS_GUARD_BREAKS = 5 };

struct rs_guard_break;

/* --- the coordinator ------------------------------------------------------------------------------------------------------------ */

/* Before the first checkpoint. -ENOMEM. */
long rs_guard_breaks_begin(void) RS_HIDDEN;
/* Number k is at this address, too, from now on, at which an instruction must begin; several may be at one. -EINVAL: there can be none: it is no text of the program's own, or a patch is near, or the instruction cannot be executed elsewhere. */
long rs_guard_break_set(unsigned k, uint64_t at) RS_HIDDEN;
void rs_guard_break_clear(unsigned k) RS_HIDDEN;
/* All, with their slots: the world is stopped. */
void rs_guard_breaks_clear(void) RS_HIDDEN;

/* --- threads; general registers only ---------------------------------------------------------------------------------------------- */

/* SIGTRAP of an int3: what was met, and RIP is at it again; NULL: it is none of these. */
const struct rs_guard_break *rs_guard_break_hit(greg_t *g) RS_HIDDEN;
/* Is number k at this address? */
bool rs_guard_break_is(unsigned k, uint64_t at) RS_HIDDEN;
/* Which numbers are there now, a bit each. 0: it has gone meanwhile, the thread is to go on where it is. */
uint32_t rs_guard_break_there(const struct rs_guard_break *b) RS_HIDDEN;
/* Past it. True: the registers are those behind the instruction. False: it will be executed in its slot. */
bool rs_guard_break_past(const struct rs_guard_break *b, greg_t *g) RS_HIDDEN;
/* RIP in a slot is where the thread is for the program. Returns what RIP was if the instruction is not over (a fault, a repeated one); 0: it is, or there was no slot. */
uint64_t rs_guard_break_show(greg_t *g) RS_HIDDEN;
/* n bytes that were read at an address are what they are without breakpoints. */
void rs_guard_break_hide(uint64_t at, void *bytes, size_t n) RS_HIDDEN;
#endif
