/* guardstore.h: what an instruction is about to write to memory, and by which register it could be led elsewhere: guardstore.c. */
#ifndef RS_GUARDSTORE_H
#define RS_GUARDSTORE_H
#include "decode.h"

struct rs_guard_store {
	uint64_t at;
	uint32_t first, bytes;     /* [at+first,at+bytes) is written; bytes 0: not known, 64 at most */
	uint32_t mask, element;    /* only the elements of so many bytes whose bit is set in this mask register; 0: all */
	uint32_t r, scale;         /* with 2^scale times less in register r it writes, and reads what it changes, that much further down, and does all else as before; r 16: there is none */
	bool string;               /* movs or stos */
	bool flags;                /* pushf */
	bool plain;                /* a mov of `value` and nothing else */
	uint64_t value;
};

/* gregs: before the instruction, as in a ucontext. False: it stores nothing that this knows. */
bool rs_guard_store(const struct rs_instruction *in, const uint64_t *gregs, struct rs_guard_store *s) __attribute__((visibility("hidden")));
/* Now by what the mask register is. */
void rs_guard_store_masked(struct rs_guard_store *s, uint64_t mask) __attribute__((visibility("hidden")));
/* Where a register is in a ucontext. */
unsigned rs_guard_store_register(unsigned r) __attribute__((visibility("hidden")));
#endif
