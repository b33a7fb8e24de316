/* decode.h: instructions, as far as is needed to say what code did with the general registers: pointer.c and crashtext.c. */
#ifndef RS_DECODE_H
#define RS_DECODE_H
#include "agent.h"

enum { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI };

struct rs_instruction {
	const uint8_t *at;
	uint8_t length, op, map; /* map: 0 one byte, 1 0f, 2 0f38, 3 0f3a, 4 VEX, EVEX */
	uint8_t rex, small, odd; /* rex: of VEX and EVEX its low three bits; small: 66; odd: f2, f3, segment or address prefixes */
	bool modrm;
	uint8_t mod, reg, rm, base, index, scale, imm; /* base and index of a memory operand: 16: none, 17: rip; scale: a shift; imm: bytes */
	int32_t disp;
};

static inline unsigned rs_register_bit(unsigned r) { return 1u << (r & 15); }

/* The instruction at code, of which n bytes can be read; false: none that this knows. */
bool rs_decode(struct rs_instruction *in, const uint8_t *code, size_t n) __attribute__((visibility("hidden")));
/* The general registers that it may write, a bit each. */
unsigned rs_decode_writes(const struct rs_instruction *in) __attribute__((visibility("hidden")));
/* What follows it is not run through after it. */
bool rs_decode_leaves(const struct rs_instruction *in) __attribute__((visibility("hidden")));
/* Where a direct branch at pc leads; 0: it is none. */
uintptr_t rs_decode_target(const struct rs_instruction *in, uintptr_t pc) __attribute__((visibility("hidden")));
#endif
