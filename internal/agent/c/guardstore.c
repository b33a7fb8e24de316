/* guardstore.c: stores of instructions. See guardstore.h. Rows of what writes to its memory operand; what is in none of them is not known, which is right, only slower. (bts and its like write where their register says.)
 *
 * A register can be used to lead a store elsewhere if nothing but the address comes from it: the data must not, nor another part of the address. */
#include "guardstore.h"
#include <ucontext.h>

enum { NONE = 16, RIP = 17 };
/* Bytes: OF_OP: one where the opcode is even, else the operand's; OPERAND: 2, 4 or 8, by prefixes. The data is a register: REG: of modrm; ACC: also rax; PAIRS: rax, rcx, rdx, rbx. */
enum { UNKNOWN = 0, OPERAND = 255, OF_OP = 254, WIDE = 253 /* 16, VEX and EVEX: 32, 64 */, SCALAR = 252 /* by prefix: 16 (or as WIDE), 4, 8 */, WORD = 251 /* 4, 8 with W */ };
enum { REG = 1, ACC = 2, PAIRS = 4 };
struct row { uint8_t map, from, to, bytes, data; uint8_t groups; /* of modrm.reg; 0: all */ };

static const struct row rows[] = {
	{0, 0x00, 0x01, OF_OP, REG, 0}, {0, 0x08, 0x09, OF_OP, REG, 0}, {0, 0x10, 0x11, OF_OP, REG, 0}, {0, 0x18, 0x19, OF_OP, REG, 0}, {0, 0x20, 0x21, OF_OP, REG, 0}, {0, 0x28, 0x29, OF_OP, REG, 0},
	{0, 0x30, 0x31, OF_OP, REG, 0}, {0, 0x80, 0x81, OF_OP, 0, 0x7f}, {0, 0x83, 0x83, OPERAND, 0, 0x7f}, {0, 0x86, 0x87, OF_OP, REG, 0}, {0, 0x88, 0x89, OF_OP, REG, 0}, {0, 0xc0, 0xc1, OF_OP, 0, 0},
	{0, 0xc6, 0xc7, OF_OP, 0, 0x01}, {0, 0xd0, 0xd3, OF_OP, 0, 0}, {0, 0xf6, 0xf7, OF_OP, 0, 0x0c}, {0, 0xfe, 0xff, OF_OP, 0, 0x03},
	{0, 0xd9, 0xd9, 4, 0, 0x0c}, {0, 0xd9, 0xd9, 2, 0, 0x80}, {0, 0xdb, 0xdb, 4, 0, 0x0e}, {0, 0xdb, 0xdb, 10, 0, 0x80}, {0, 0xdd, 0xdd, 8, 0, 0x0e}, {0, 0xdd, 0xdd, 2, 0, 0x80}, {0, 0xdf, 0xdf, 2, 0, 0x0e}, {0, 0xdf, 0xdf, 8, 0, 0x80},
	{1, 0x11, 0x11, SCALAR, 0, 0}, {1, 0x13, 0x13, 8, 0, 0}, {1, 0x17, 0x17, 8, 0, 0}, {1, 0x29, 0x29, WIDE, 0, 0}, {1, 0x2b, 0x2b, WIDE, 0, 0}, {1, 0x7e, 0x7e, WORD, 0, 0}, {1, 0x7f, 0x7f, WIDE, 0, 0},
	{1, 0x90, 0x9f, 1, 0, 0}, {1, 0xa4, 0xa5, OPERAND, REG, 0}, {1, 0xac, 0xad, OPERAND, REG, 0}, {1, 0xba, 0xba, OPERAND, 0, 0xe0},
	{1, 0xb0, 0xb1, OF_OP, REG | ACC, 0}, {1, 0xc0, 0xc1, OF_OP, REG, 0}, {1, 0xc3, 0xc3, WORD, REG, 0}, {1, 0xc7, 0xc7, UNKNOWN, PAIRS, 0x02}, {1, 0xd6, 0xd6, 8, 0, 0}, {1, 0xe7, 0xe7, WIDE, 0, 0},
};

unsigned rs_guard_store_register(unsigned r)
{
	static const uint8_t where[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI, REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
	return where[r & 15];
}

static uint64_t of(const uint64_t *gregs, unsigned r) { return gregs[rs_guard_store_register(r)]; }

/* Prefixes and vector length of any encoding. */
struct vector { uint8_t map, pp /* 0, 66, f3, f2 */; bool w, evex; uint8_t mask; uint32_t bytes; };

static bool vector_of(const struct rs_instruction *in, struct vector *v)
{
	const uint8_t *at = in->at;
	*v = (struct vector){.map = in->map, .pp = in->odd == 0xf3 ? 2 : in->odd == 0xf2 ? 3 : in->small, .w = in->rex & 8, .bytes = 16};
	if (in->map != 4)
		return true;
	while (*at != 0xc4 && *at != 0xc5 && *at != 0x62)
		if (++at == in->at + in->length)
			return false;
	if (*at == 0xc5) {
		*v = (struct vector){.map = 1, .pp = at[1] & 3, .bytes = at[1] & 4 ? 32 : 16};
	} else if (*at == 0xc4) {
		*v = (struct vector){.map = at[1] & 31, .pp = at[2] & 3, .w = at[2] & 0x80, .bytes = at[2] & 4 ? 32 : 16};
	} else {
		unsigned length = at[3] >> 5 & 3;
		*v = (struct vector){.map = at[1] & 7, .pp = at[2] & 3, .w = at[2] & 0x80, .evex = true, .mask = at[3] & 7, .bytes = 16u << length};
		return length < 3 && !(at[3] & 0x10);
	}
	return true;
}

static uint32_t size_of(const struct rs_instruction *in, const struct row *row, const struct vector *v)
{
	uint32_t operand = in->rex & 8 && in->map < 4 ? 8 : in->small ? 2 : 4;
	switch (row->bytes) {
	case OF_OP: return in->op & 1 ? operand : 1;
	case OPERAND: return operand;
	case WIDE: return in->map == 1 && v->pp == 0 && (in->op == 0x7f || in->op == 0xe7) ? 8 : v->bytes; /* of MMX */
	case SCALAR: return v->pp == 2 ? 4 : v->pp == 3 ? 8 : v->bytes;
	case WORD: return v->w ? 8 : 4;
	}
	return row->bytes;
}

static bool names(const struct rs_instruction *in, unsigned r, bool bytes)
{
	return in->reg == r || (bytes && !in->rex && in->reg >= 4 && in->reg < 8 && in->reg - 4u == r);
}

static bool free_of(const struct rs_instruction *in, const struct row *row, unsigned r, bool bytes)
{
	if (row->data & REG && names(in, r, bytes))
		return false;
	if (row->data & ACC && r == RAX)
		return false;
	return !(row->data & PAIRS && (r == RAX || r == RCX || r == RDX || r == RBX));
}

/* By the stack pointer or rdi. */
static bool implied(const struct rs_instruction *in, const uint64_t *gregs, struct rs_guard_store *s)
{
	uint8_t op = in->op, more = in->reg & 7;
	bool call = op == 0xe8 || (op == 0xff && more == 2), push = (op >= 0x50 && op <= 0x57) || op == 0x68 || op == 0x6a || op == 0x9c || (op == 0xff && more == 6);
	if (op == 0xaa || op == 0xab || op == 0xa4 || op == 0xa5) {
		s->string = true;
		s->bytes = !(op & 1) ? 1 : in->rex & 8 ? 8 : in->small ? 2 : 4;
		s->at = of(gregs, RDI);
		s->r = RDI;
		return true;
	}
	if (!call && !push)
		return false;
	s->bytes = in->small && !call ? 2 : 8;
	s->at = of(gregs, RSP) - s->bytes;
	s->flags = op == 0x9c;
	bool pushed = (op >= 0x50 && op <= 0x57 && ((op & 7) | (in->rex & 1) << 3) == RSP) || (op == 0xff && (in->base == RSP || (in->mod == 3 && in->rm == RSP)));
	s->r = pushed ? NONE : RSP;
	return true;
}

/* Of 88, 89, c6, c7. */
static void plain(const struct rs_instruction *in, const uint64_t *gregs, struct rs_guard_store *s)
{
	const uint8_t *end = in->at + in->length;
	s->plain = true;
	if (in->op == 0x88 || in->op == 0x89) {
		bool high = in->op == 0x88 && !in->rex && in->reg >= 4;
		s->value = high ? of(gregs, in->reg - 4u) >> 8 : of(gregs, in->reg);
		return;
	}
	uint64_t v = 0;
	for (unsigned i = 0; i < in->imm; i++)
		v |= (uint64_t)end[(int)i - in->imm] << 8 * i;
	s->value = in->imm == 4 ? (uint64_t)(int64_t)(int32_t)(uint32_t)v : v;
}

void rs_guard_store_masked(struct rs_guard_store *s, uint64_t mask)
{
	uint32_t n = s->bytes / s->element;
	mask &= n < 64 ? (1ull << n) - 1 : ~0ull;
	s->first = mask ? (uint32_t)__builtin_ctzll(mask) * s->element : 0;
	s->bytes = mask ? (64 - (uint32_t)__builtin_clzll(mask)) * s->element : s->bytes;
}

bool rs_guard_store(const struct rs_instruction *in, const uint64_t *gregs, struct rs_guard_store *s)
{
	struct vector v;
	*s = (struct rs_guard_store){.r = NONE};
	if (in->odd == 0x64 || in->odd == 0x65 || in->odd == 0x67 || !vector_of(in, &v))
		return false;
	if (in->map == 0 && implied(in, gregs, s))
		return true;
	if (!in->modrm || in->mod == 3)
		return false;
	const struct row *row = NULL;
	for (unsigned i = 0; i < sizeof rows / sizeof *rows && !row; i++)
		if (rows[i].map == v.map && in->op >= rows[i].from && in->op <= rows[i].to && (!rows[i].groups || rows[i].groups >> (in->reg & 7) & 1))
			row = &rows[i];
	/* Of the general registers' there are none in VEX; f3 7e loads. */
	if (!row || (in->map == 4 && (v.map != 1 || row->data || row->bytes == 1)) || (row->bytes == WORD && in->op == 0x7e && v.pp > 1))
		return false;
	s->bytes = size_of(in, row, &v);
	int64_t disp = v.evex && in->mod == 1 ? in->disp * (int64_t)s->bytes : in->disp;
	s->at = (uint64_t)disp;
	if (in->base == RIP)
		s->at += gregs[REG_RIP] + in->length;
	else if (in->base < NONE)
		s->at += of(gregs, in->base);
	if (in->index < NONE)
		s->at += of(gregs, in->index) << in->scale;
	s->mask = v.mask;
	s->element = in->op == 0x7f && v.pp == 3 ? 1u + v.w : v.w ? 8 : 4;
	bool one = s->bytes == 1;
	if (in->base < NONE && in->base != in->index && free_of(in, row, in->base, one)) {
		s->r = in->base;
	} else if (in->index < NONE && in->base != in->index && free_of(in, row, in->index, one)) {
		s->r = in->index;
		s->scale = in->scale;
	}
	if (in->map == 0 && (in->op == 0x88 || in->op == 0x89 || in->op == 0xc6 || in->op == 0xc7))
		plain(in, gregs, s);
	return true;
}
