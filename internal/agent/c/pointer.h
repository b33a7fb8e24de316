/* pointer.h: where a pointer that a crash used, or the divisor, was read from, by the instructions before it (guardstep.h). */
#ifndef RS_POINTER_H
#define RS_POINTER_H
#include "agent.h"

struct rs_pointer {
	uint64_t location, value; /* what was read, and where: aligned */
	uint32_t bytes;           /* 1, 2, 4, 8 */
	uint32_t used;            /* enum Used */
};

/* How far the value was followed; zeroed at first. Lies in the arena. */
enum { RS_POINTER_NEW, RS_POINTER_REGISTER /* it was in r, whose value is `holds`, before the first of the steps that were looked at */, RS_POINTER_STACK /* it was at p.location then */ };
struct rs_pointer_search {
	uint32_t state, r;
	uint64_t holds;
	uint64_t value;           /* what the crash used; of so many bytes */
	unsigned bytes, as;       /* as: enum Used, of all of it */
	bool part, found;
	struct rs_pointer p;      /* if found: the furthest that it was followed to */
};

/* q is the search for what an instruction wrote there, of so many bytes; behind: the registers behind it; *pc: the instruction. False: it was none that stores a register. */
bool rs_pointer_store(struct rs_pointer_search *q, const uint64_t *behind, uint64_t place, unsigned bytes, uint64_t value, uint64_t *pc) __attribute__((visibility("hidden")));
/* Where the instruction before which the registers are these stores a register; 0: it is none that does. */
uint64_t rs_pointer_stores(const uint64_t *gregs) __attribute__((visibility("hidden")));
/* Of an instruction that has crashed: what its registers hold of the address that it accesses or goes to, two values at most. */
unsigned rs_pointer_addressed(const uint64_t *gregs, uint64_t *value) __attribute__((visibility("hidden")));
/* A jump that goes by flags; and an instruction that may lie between a comparison and such a jump, as it leaves the flags alone. */
struct rs_instruction;
bool rs_pointer_jumps(const struct rs_instruction *in) __attribute__((visibility("hidden")));
bool rs_pointer_keeps_flags(const struct rs_instruction *in) __attribute__((visibility("hidden")));
/* For the coordinator, between re-executions. False: steps that end with the first one of these may say more. */
bool rs_pointer_source(struct rs_pointer_search *q) __attribute__((visibility("hidden")));
#endif
