/* guardrseq.h: the area of each thread that the kernel writes by itself (rseq), as glibc registers it. guardrseq.c; docs/decisions.md, 46. */
#ifndef RS_GUARDRSEQ_H
#define RS_GUARDRSEQ_H
#include "os.h"

/* LEAST: glibc 2.36's, and what any kernel takes; MOST: a checkpoint leaves no more of one thread. */
enum { RS_RSEQ = 334, RS_RSEQ_LEAST = 32, RS_RSEQ_MOST = 64, RS_RSEQ_GIVE_UP = 1, RS_RSEQ_SIGNATURE = 0x53053053 };
/* Bytes with which glibc registers each thread's. */
extern uint32_t rs_rseq_bytes __attribute__((visibility("hidden")));
/* In whole words. */
static inline uint32_t rs_rseq_area(void) { return (rs_rseq_bytes + 7) & -8u; }
/* Before other threads and the first checkpoint, on a thread whose area this is. */
void rs_rseq_find(uintptr_t area) __attribute__((visibility("hidden")));
#endif
