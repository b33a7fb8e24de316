/* evidence.h: bytes of the heap that nobody may write and somebody has written: noticed, told, and, where epochs are recorded, looked into. */
#ifndef RS_EVIDENCE_H
#define RS_EVIDENCE_H
#include "agent.h"

/* As event `evidence` has it. */
struct rs_evidence {
	uint32_t kind;           /* enum Evidence */
	uint32_t noticed;        /* enum Noticed */
	uint32_t number;         /* in this process, from 1; of no other evidence */
	uintptr_t block;
	size_t size;
	uintptr_t bad;           /* the first wrong byte */
	uint32_t bytes_wrong;
	bool freed;
	bool more;               /* bytes_wrong is the least */
	bool known;              /* size is the one that was asked for; else what it can be at most */
	uint32_t stack, alloc_stack, free_stack;
	uint32_t alloc_thread, free_thread;
	uintptr_t next;          /* the block in front of which bad lies, 0: not known */
	size_t next_size;
	uint32_t next_stack;
	uint32_t shown;          /* of was and is */
	uint8_t was[16], is[16]; /* at bad */
};

/* Called, if set, by the thread that found these n of one moment, as the program calls a function, before they are sent: an epoch may be ended. Events guard-writer that it sends belong to the evidence. */
extern void (*rs_evidence_found)(const struct rs_evidence *e, unsigned n) __attribute__((visibility("hidden")));

/* The heap has guard bytes: before there are other threads. */
void rs_evidence_begin(void) __attribute__((visibility("hidden")));
/* Looks at all blocks and tells what is wrong; of a forked child only so many that it costs little. noticed: enum Noticed, why now. t: the calling thread, not in the allocator. */
void rs_evidence_check(struct rs_thread *t, unsigned noticed) __attribute__((visibility("hidden")));
/* The heap block that p lies in or behind, nothing being wrong with it: of e block, size, freed, threads and stacks are set, which are told. */
bool rs_evidence_block(struct rs_thread *t, uintptr_t p, struct rs_evidence *e) __attribute__((visibility("hidden")));
/* How much there was in this process so far. */
uint32_t rs_evidence_count(void) __attribute__((visibility("hidden")));
#endif
