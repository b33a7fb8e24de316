/* pointer.h: where a pointer that a crash used, or the divisor, was read from, by the instructions before it (guardstep.h). */
#ifndef RS_POINTER_H
#define RS_POINTER_H
#include "agent.h"

struct rs_pointer {
	uint64_t location, value; /* what was read, and where: aligned */
	uint32_t bytes;           /* 1, 2, 4, 8 */
	uint32_t used;            /* enum Used */
};

/* For the coordinator, between re-executions. False: not known. *whole: earlier steps would not say more. */
bool rs_pointer_source(struct rs_pointer *p, bool *whole) __attribute__((visibility("hidden")));
#endif
