/* pointer.h: where a pointer that a faulting instruction used was read from. */
#ifndef RS_POINTER_H
#define RS_POINTER_H
#include "agent.h"
#include <ucontext.h>

/* The instruction at g's RIP used *value as a pointer, which lies at *location now, and was read from there by an instruction shortly before, as far as the code between tells. False: not known. */
bool rs_pointer_source(const greg_t *g, uintptr_t *location, uint64_t *value) __attribute__((visibility("hidden")));
#endif
