/* decode.c: lengths, operands and results of instructions. What it does not know it says it does not know: of such an instruction all registers may be written. */
#include "decode.h"

#define VOLATILE_REGISTERS 0x0fc7u /* by a call: all but rbx, rsp, rbp, r12 to r15 */
#define ALL_REGISTERS 0xffffu

/* --- lengths -------------------------------------------------------------------------------------------------------------------- */

static bool one_byte_modrm(uint8_t op)
{
	if (op < 0x40)
		return (op & 7) < 4;
	return op == 0x63 || op == 0x69 || op == 0x6b || (op >= 0x80 && op <= 0x8f) || op == 0xc0 || op == 0xc1 || op == 0xc6 || op == 0xc7 || (op >= 0xd0 && op <= 0xd3) || (op >= 0xd8 && op <= 0xdf) || op == 0xf6 || op == 0xf7 || op >= 0xfe;
}

static bool one_byte_known(uint8_t op)
{
	if (op < 0x40)
		return (op & 7) < 6;
	if ((op & 0xf0) == 0x40 || (op >= 0x64 && op <= 0x67) || op == 0xf0 || op == 0xf2 || op == 0xf3)
		return false; /* a prefix behind REX, which then does not count */
	return op != 0x8f /* XOP, or a pop to memory */ && op != 0x60 && op != 0x61 && op != 0x82 && op != 0x9a && op != 0xce && op != 0xd4 && op != 0xd5 && op != 0xd6 && op != 0xea;
}

static unsigned one_byte_immediate(const struct rs_instruction *in)
{
	uint8_t op = in->op;
	unsigned z = in->small && !(in->rex & 8) ? 2 : 4;
	if (op < 0x40)
		return (op & 7) == 4 ? 1 : (op & 7) == 5 ? z : 0;
	if ((op >= 0x70 && op <= 0x80) || op == 0x6a || op == 0x6b || op == 0x83 || op == 0xa8 || (op >= 0xb0 && op <= 0xb7) || op == 0xc0 || op == 0xc1 || op == 0xc6 || op == 0xcd || (op >= 0xe0 && op <= 0xe7) || op == 0xeb)
		return 1;
	if (op == 0x68 || op == 0x69 || op == 0x81 || op == 0xa9 || op == 0xc7)
		return z;
	if (op >= 0xb8 && op <= 0xbf)
		return in->rex & 8 ? 8 : z;
	if (op >= 0xa0 && op <= 0xa3)
		return 8;
	if (op == 0xe8 || op == 0xe9)
		return 4;
	if (op == 0xc2 || op == 0xca)
		return 2;
	if (op == 0xc8)
		return 3;
	if (op == 0xf6 || op == 0xf7)
		return in->reg & 6 ? 0 : op == 0xf6 ? 1 : z;
	return 0;
}

static bool two_byte_modrm(uint8_t op)
{
	return !(op >= 0x05 && op <= 0x0b) && op != 0x0e && !(op >= 0x30 && op <= 0x37) && op != 0x77 && !(op >= 0x80 && op <= 0x8f) && !(op >= 0xa0 && op <= 0xa2) && !(op >= 0xa8 && op <= 0xaa) && !(op >= 0xc8 && op <= 0xcf);
}

static unsigned two_byte_immediate(uint8_t op)
{
	if (op >= 0x80 && op <= 0x8f)
		return 4;
	return (op >= 0x70 && op <= 0x73) || op == 0xa4 || op == 0xac || op == 0xba || op == 0xc2 || (op >= 0xc4 && op <= 0xc6);
}

/* ModRM, SIB and displacement at `at`; how many bytes, 0: more than n. */
static unsigned operand(struct rs_instruction *in, const uint8_t *at, size_t n)
{
	if (n < 1)
		return 0;
	uint8_t rex = in->rex;
	unsigned used = 1, disp = 0;
	in->modrm = true;
	in->mod = at[0] >> 6;
	in->reg = (uint8_t)((at[0] >> 3 & 7) | (rex & 4) << 1);
	in->rm = (uint8_t)((at[0] & 7) | (rex & 1) << 3);
	in->base = in->index = 16;
	if (in->mod == 3)
		return used;
	disp = in->mod == 1 ? 1 : in->mod == 2 ? 4 : 0;
	if ((at[0] & 7) == 4) {
		if (n < 2)
			return 0;
		uint8_t sib = at[used++];
		in->index = (uint8_t)((sib >> 3 & 7) | (rex & 2) << 2);
		in->scale = sib >> 6;
		in->base = (uint8_t)((sib & 7) | (rex & 1) << 3);
		if (in->index == RSP)
			in->index = 16;
		if ((sib & 7) == 5 && in->mod == 0) {
			in->base = 16;
			disp = 4;
		}
	} else if ((at[0] & 7) == 5 && in->mod == 0) {
		in->base = 17;
		disp = 4;
	} else {
		in->base = in->rm;
	}
	if (n < used + disp)
		return 0;
	if (disp == 1)
		in->disp = (int8_t)at[used];
	else if (disp == 4)
		in->disp = (int32_t)((uint32_t)at[used] | (uint32_t)at[used + 1] << 8 | (uint32_t)at[used + 2] << 16 | (uint32_t)at[used + 3] << 24);
	return used + disp;
}

bool rs_decode(struct rs_instruction *in, const uint8_t *code, size_t n)
{
	size_t i = 0;
	*in = (struct rs_instruction){.at = code};
	if (n > 15)
		n = 15;
	for (; i < n; i++) {
		uint8_t b = code[i];
		if (b == 0x66)
			in->small = 1;
		else if (b == 0xf0 || b == 0xf2 || b == 0xf3 || b == 0x26 || b == 0x2e || b == 0x36 || b == 0x3e || b == 0x64 || b == 0x65 || b == 0x67)
			in->odd = b == 0x2e || b == 0x3e || b == 0xf0 ? in->odd : b;
		else
			break;
	}
	if (i < n && (code[i] & 0xf0) == 0x40)
		in->rex = code[i++];
	if (i >= n)
		return false;
	unsigned imm = 0;
	bool modrm;
	uint8_t b = code[i++];
	if ((b == 0xc4 || b == 0xc5 || b == 0x62) && !in->rex && !in->small) {
		unsigned head = b == 0xc5 ? 1 : b == 0xc4 ? 2 : 3;
		if (i + head >= n)
			return false;
		unsigned map = b == 0xc5 ? 1 : code[i] & (b == 0x62 ? 7 : 31);
		in->rex = (uint8_t)~code[i] >> 5 & (b == 0xc5 ? 4 : 7); /* R, X, B, as REX has them */
		i += head;
		in->map = 4;
		in->op = code[i++];
		if (map < 1 || map > 3)
			return false;
		modrm = map != 1 || in->op != 0x77;
		imm = map == 3 || (map == 1 && two_byte_immediate(in->op));
	} else if (b == 0x0f) {
		if (i >= n)
			return false;
		in->map = 1;
		in->op = code[i++];
		if (in->op == 0x38 || in->op == 0x3a) {
			if (i >= n)
				return false;
			in->map = in->op == 0x38 ? 2 : 3;
			in->op = code[i++];
			modrm = true;
			imm = in->map == 3;
		} else {
			if (in->op == 0x78 || in->op == 0x0f) /* AMD's extrq and insertq, 3DNow! */
				return false;
			modrm = two_byte_modrm(in->op);
			imm = two_byte_immediate(in->op);
		}
	} else {
		in->op = b;
		if (!one_byte_known(b) || b == 0x62 || b == 0xc4 || b == 0xc5)
			return false;
		modrm = one_byte_modrm(b);
	}
	if (modrm) {
		unsigned used = operand(in, code + i, n - i);
		if (!used)
			return false;
		i += used;
	}
	if (in->map == 0)
		imm = one_byte_immediate(in);
	if (i + imm > n)
		return false;
	in->imm = (uint8_t)imm;
	in->length = (uint8_t)(i + imm);
	return true;
}

/* --- what instructions do ------------------------------------------------------------------------------------------------------------- */

/* A register's bit; of bytes without a REX prefix, where 4 to 7 are ah to bh, both. */
static unsigned written(const struct rs_instruction *in, unsigned r)
{
	bool bytes = in->map == 1 ? in->op >= 0x90 && in->op <= 0x9f : in->map == 0 && !(in->op & 1);
	return rs_register_bit(r) | (bytes && !in->rex && r >= 4 ? rs_register_bit(r - 4) : 0);
}

unsigned rs_decode_writes(const struct rs_instruction *in)
{
	unsigned rm = in->modrm && in->mod == 3 ? written(in, in->rm) : 0, reg = written(in, in->reg), low = rs_register_bit((unsigned)(in->op & 7) | (in->rex & 1u) << 3);
	uint8_t op = in->op, more = in->reg & 7;
	if (in->map == 1) {
		if ((op >= 0x10 && op <= 0x1f) || (op >= 0x28 && op <= 0x2b) || op == 0x2e || op == 0x2f || (op >= 0x51 && op <= 0x6f) || (op >= 0x74 && op <= 0x77) || (op >= 0x80 && op <= 0x8f) || op == 0x7f || op == 0xd6 || op == 0xef || op == 0xa3)
			return 0;
		if (op >= 0x90 && op <= 0x9f)
			return rm;
		if ((op >= 0x40 && op <= 0x4f) || op == 0xaf || op == 0xb6 || op == 0xb7 || op == 0xbe || op == 0xbf || op == 0xbc || op == 0xbd || op == 0xb8)
			return reg;
		return ALL_REGISTERS;
	}
	if (in->map != 0)
		return ALL_REGISTERS;
	if (op < 0x40) {
		if (op >= 0x38)
			return 0; /* cmp */
		return (op & 7) < 2 ? rm : (op & 7) < 4 ? reg : rs_register_bit(RAX);
	}
	if (op >= 0x50 && op <= 0x57)
		return rs_register_bit(RSP);
	if (op >= 0x58 && op <= 0x5f)
		return low | rs_register_bit(RSP);
	if ((op >= 0x70 && op <= 0x7f) || op == 0x84 || op == 0x85 || op == 0x90 || op == 0xa8 || op == 0xa9 || op == 0xe9 || op == 0xeb)
		return op == 0x90 && in->rex & 1 ? ALL_REGISTERS : 0;
	if (op == 0x68 || op == 0x6a)
		return rs_register_bit(RSP);
	if (op == 0x80 || op == 0x81 || op == 0x83)
		return more == 7 ? 0 : rm;
	if (op == 0x88 || op == 0x89 || op == 0xc6 || op == 0xc7 || op == 0xc0 || op == 0xc1 || (op >= 0xd0 && op <= 0xd3))
		return rm;
	if (op == 0x8b || op == 0x8d || op == 0x63 || op == 0x69 || op == 0x6b)
		return reg;
	if (op >= 0xb8 && op <= 0xbf)
		return low;
	if (op == 0x98 || op == 0x99)
		return rs_register_bit(RAX) | rs_register_bit(RDX);
	if (op == 0xf6 || op == 0xf7)
		return more < 2 ? 0 : more < 4 ? rm : rs_register_bit(RAX) | rs_register_bit(RDX);
	if (op == 0xff && more < 2)
		return rm;
	if (op == 0xe8 || (op == 0xff && more == 2))
		return VOLATILE_REGISTERS;
	return ALL_REGISTERS;
}

bool rs_decode_leaves(const struct rs_instruction *in)
{
	return in->map == 0 && (in->op == 0xe9 || in->op == 0xeb || in->op == 0xc3 || in->op == 0xc2 || in->op == 0xcc || in->op == 0xf4 || (in->op == 0xff && ((in->reg & 7) == 4 || (in->reg & 7) == 5)));
}

uintptr_t rs_decode_target(const struct rs_instruction *in, uintptr_t pc)
{
	const uint8_t *end = in->at + in->length;
	if (in->map == 0 && ((in->op >= 0x70 && in->op <= 0x7f) || in->op == 0xeb || (in->op >= 0xe0 && in->op <= 0xe3)))
		return pc + in->length + (uintptr_t)(intptr_t)(int8_t)end[-1];
	if ((in->map == 0 && in->op == 0xe9) || (in->map == 1 && in->op >= 0x80 && in->op <= 0x8f)) {
		uint32_t d = (uint32_t)end[-4] | (uint32_t)end[-3] << 8 | (uint32_t)end[-2] << 16 | (uint32_t)end[-1] << 24;
		return pc + in->length + (uintptr_t)(intptr_t)(int32_t)d;
	}
	return 0;
}
