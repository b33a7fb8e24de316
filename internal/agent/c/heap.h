/* heap.h: what heap.c offers to new.c and dl.c. */
#ifndef RS_HEAP_H
#define RS_HEAP_H
#include "agent.h"

/* Call after a block was handed out (p may be NULL), with the interposed function's caller and frame. */
void rs_heap_got(void *p, size_t n, unsigned kind, uintptr_t pc, void *fp);
/* Call before a block is given back (p may be NULL). */
void rs_heap_give(void *p, unsigned kind, uintptr_t pc, void *fp);
/* Call before a real operator new and after a real operator delete: what malloc and free are told about in between is the same block. */
void rs_heap_operator(void);
/* Has the agent's own heap begin, if the session asks for it: before there are other threads. */
void rs_heap_begin(void) __attribute__((visibility("hidden")));
/* From now on blocks may be had and given back past us. */
void rs_heap_bypassed(void);
#endif
