/* pointer.c: where a pointer that a faulting instruction used was read from: a few instructions before the fault, decoded as far as needed.
 *
 * Ground rules that bite here: called in a handler of a crash: all memory is read by the kernel, nothing is taken for granted. What is claimed rests on three things: the code between the load and the fault was run through (no jump out of it that is
 * always taken, none into it that is seen), no instruction there writes the registers that the address is made of, and the pointer's value lies at that address now. */
#include "pointer.h"
#include "core.h"
#include "os.h"
#include <sys/uio.h>

enum { BEFORE = 192, BEHIND = 64, STARTS = 32, MOST = 128, DEPTH = 6 };
enum { RAX, RCX, RDX, RBX, RSP, RBP, RSI, RDI };
#define VOLATILE_REGISTERS 0x0fc7u /* by a call: all but rbx, rsp, rbp, r12 to r15 */
#define ALL_REGISTERS 0xffffu

struct instruction {
	const uint8_t *at;
	uint8_t length, op, map; /* map: 0 one byte, 1 0f, 2 0f38, 3 0f3a, 4 VEX, EVEX */
	uint8_t rex, small, odd; /* small: 66; odd: f2, f3, segment or address prefixes */
	bool modrm;
	uint8_t mod, reg, rm, base, index, imm; /* base and index of a memory operand: 16: none, 17: rip */
	int32_t disp;
};

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

static unsigned one_byte_immediate(const struct instruction *in)
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
static unsigned operand(struct instruction *in, const uint8_t *at, size_t n)
{
	if (n < 1)
		return 0;
	uint8_t rex = in->map == 4 ? 0 : in->rex;
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

static bool decode(struct instruction *in, const uint8_t *code, size_t n)
{
	size_t i = 0;
	*in = (struct instruction){.at = code};
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

unsigned rs_pointer_length(const uint8_t *code, size_t n)
{
	struct instruction in;
	return decode(&in, code, n) ? in.length : 0;
}

/* --- what instructions do ------------------------------------------------------------------------------------------------------------- */

static unsigned bit(unsigned r) { return 1u << (r & 15); }

/* A register's bit; of bytes without a REX prefix, where 4 to 7 are ah to bh, both. */
static unsigned written(const struct instruction *in, unsigned r)
{
	bool bytes = in->map == 1 ? in->op >= 0x90 && in->op <= 0x9f : in->map == 0 && !(in->op & 1);
	return bit(r) | (bytes && !in->rex && r >= 4 ? bit(r - 4) : 0);
}

/* The general registers that it may write. */
static unsigned writes(const struct instruction *in)
{
	unsigned rm = in->modrm && in->mod == 3 ? written(in, in->rm) : 0, reg = written(in, in->reg), low = bit((unsigned)(in->op & 7) | (in->rex & 1u) << 3);
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
		return (op & 7) < 2 ? rm : (op & 7) < 4 ? reg : bit(RAX);
	}
	if (op >= 0x50 && op <= 0x57)
		return bit(RSP);
	if (op >= 0x58 && op <= 0x5f)
		return low | bit(RSP);
	if ((op >= 0x70 && op <= 0x7f) || op == 0x84 || op == 0x85 || op == 0x90 || op == 0xa8 || op == 0xa9 || op == 0xe9 || op == 0xeb)
		return op == 0x90 && in->rex & 1 ? ALL_REGISTERS : 0;
	if (op == 0x68 || op == 0x6a)
		return bit(RSP);
	if (op == 0x80 || op == 0x81 || op == 0x83)
		return more == 7 ? 0 : rm;
	if (op == 0x88 || op == 0x89 || op == 0xc6 || op == 0xc7 || op == 0xc0 || op == 0xc1 || (op >= 0xd0 && op <= 0xd3))
		return rm;
	if (op == 0x8b || op == 0x8d || op == 0x63 || op == 0x69 || op == 0x6b)
		return reg;
	if (op >= 0xb8 && op <= 0xbf)
		return low;
	if (op == 0x98 || op == 0x99)
		return bit(RAX) | bit(RDX);
	if (op == 0xf6 || op == 0xf7)
		return more < 2 ? 0 : more < 4 ? rm : bit(RAX) | bit(RDX);
	if (op == 0xff && more < 2)
		return rm;
	if (op == 0xe8 || (op == 0xff && more == 2))
		return VOLATILE_REGISTERS;
	return ALL_REGISTERS;
}

/* What follows it is not run through after it. */
static bool leaves(const struct instruction *in)
{
	return in->map == 0 && (in->op == 0xe9 || in->op == 0xeb || in->op == 0xc3 || in->op == 0xc2 || in->op == 0xcc || in->op == 0xf4 || (in->op == 0xff && ((in->reg & 7) == 4 || (in->reg & 7) == 5)));
}

/* Where a direct branch leads; 0: it is none. */
static uintptr_t target(const struct instruction *in, uintptr_t pc)
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

/* --- looking back ------------------------------------------------------------------------------------------------------------------------ */

struct path {
	uintptr_t base;              /* of code */
	const greg_t *g;
	unsigned n;                  /* instructions; the last is the faulting one */
	struct instruction in[MOST];
	uint8_t code[BEFORE + BEHIND + 16];
	unsigned from, have;         /* of code: what could be read */
};

static bool read_memory(uintptr_t at, void *to, size_t n)
{
	struct iovec local = {to, n}, remote = {(void *)at, n};
	return RS_SYS6(SYS_process_vm_readv, rs_os_pid(), &local, 1, &remote, 1, 0) == (long)n;
}

static uintptr_t pc_of(const struct path *p, const struct instruction *in) { return p->base + (uintptr_t)(in->at - p->code); }

static uint64_t at_fault(const struct path *p, unsigned r)
{
	static const uint8_t where[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI, REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
	return (uint64_t)p->g[where[r & 15]];
}

/* Decoding that begins in the middle of an instruction soon falls in step: the way that most beginnings lead to. */
static bool find_path(struct path *p)
{
	unsigned end = BEFORE, votes = 0, all = 0, best = 0;
	struct instruction in;
	uint8_t first[STARTS];
	for (unsigned s = 0; s < STARTS; s++) {
		unsigned at = p->from + s, meets = 0;
		first[s] = 0;
		for (; at < end && decode(&in, p->code + at, p->have - at); at += in.length)
			if (!meets && at >= p->from + 2 * STARTS)
				meets = at;
		if (at != end || !meets)
			continue;
		all++;
		first[s] = (uint8_t)(meets - p->from);
	}
	for (unsigned s = 0; s < STARTS; s++) {
		unsigned same = 0;
		for (unsigned o = 0; o < STARTS; o++)
			same += first[s] && first[o] == first[s];
		if (same > votes)
			votes = same, best = p->from + first[s];
	}
	if (!votes || votes * 4 < all * 3)
		return false;
	p->n = 0;
	for (unsigned at = best; at <= end; at += in.length) {
		if (p->n == MOST || !decode(&in, p->code + at, p->have - at))
			return false;
		p->in[p->n++] = in;
		if (at < end && leaves(&in))
			p->n = 0;
		if (at == end)
			return true;
	}
	return false;
}

/* Somebody jumps between instruction j and the faulting one, behind the former. */
static bool entered(const struct path *p, unsigned j)
{
	uintptr_t lo = pc_of(p, &p->in[j]), hi = pc_of(p, &p->in[p->n - 1]);
	struct instruction in;
	for (unsigned at = (unsigned)(p->in[0].at - p->code); at < p->have && decode(&in, p->code + at, p->have - at); at += in.length) {
		uintptr_t to = target(&in, p->base + at);
		if (to > lo && to <= hi)
			return true;
	}
	return false;
}

static bool value(const struct path *p, unsigned r, unsigned i, unsigned depth, uint64_t *v);

/* Of the memory operand of instruction j. */
static bool address(const struct path *p, unsigned j, unsigned depth, uintptr_t *a)
{
	const struct instruction *in = &p->in[j];
	uint64_t base = 0;
	if (in->odd || in->index != 16 || in->base == 16)
		return false;
	if (in->base == 17)
		base = pc_of(p, in) + in->length;
	else if (!value(p, in->base, j, depth, &base))
		return false;
	*a = base + (uintptr_t)(intptr_t)in->disp;
	return true;
}

static bool is_load(const struct instruction *in) { return in->map == 0 && in->op == 0x8b && in->rex & 8 && in->mod != 3 && !in->small; }
static bool is_store(const struct instruction *in) { return in->map == 0 && in->op == 0x89 && in->rex & 8 && in->mod != 3 && !in->small; }
static bool is_local(const struct instruction *in) { return (in->base == RBP || in->base == RSP) && in->index == 16; }

/* Who wrote register r last before instruction i; false: not seen. */
static bool writer(const struct path *p, unsigned r, unsigned i, unsigned *j)
{
	while (i-- > 0)
		if (writes(&p->in[i]) & bit(r)) {
			*j = i;
			return true;
		}
	return false;
}

/* Of register r before instruction i. */
static bool value(const struct path *p, unsigned r, unsigned i, unsigned depth, uint64_t *v)
{
	bool since = false;
	for (unsigned k = i; k + 1 < p->n; k++)
		since |= writes(&p->in[k]) & bit(r);
	if (!since) {
		*v = at_fault(p, r);
		return true;
	}
	unsigned j;
	uintptr_t a;
	if (depth == 0 || !writer(p, r, i, &j))
		return false;
	const struct instruction *in = &p->in[j];
	if (in->map || in->odd || in->small || !(in->rex & 8))
		return false;
	if ((in->op == 0x8b || in->op == 0x89) && in->mod == 3)
		return value(p, in->op == 0x8b ? in->rm : in->reg, j, depth - 1, v);
	if (in->op == 0x8d && in->mod != 3)
		return address(p, j, depth - 1, v);
	/* Memory as it is now: of variables of this function only, which others hardly write. */
	return is_load(in) && is_local(in) && address(p, j, depth - 1, &a) && read_memory(a, v, sizeof *v);
}

/* The place that register r, as it is before instruction i, was read from. */
static bool source(const struct path *p, unsigned r, unsigned i, unsigned depth, unsigned *load)
{
	unsigned j;
	if (depth == 0 || !writer(p, r, i, &j))
		return false;
	const struct instruction *in = &p->in[j];
	if (in->map || in->odd || in->small || !(in->rex & 8))
		return false;
	if ((in->op == 0x8b || in->op == 0x89) && in->mod == 3)
		return source(p, in->op == 0x8b ? in->rm : in->reg, j, depth - 1, load);
	if (!is_load(in))
		return false;
	*load = j;
	/* From a variable of the function that it was just written to: what was written came from somewhere, too. */
	for (unsigned k = j; is_local(in) && k-- > 0;) {
		const struct instruction *st = &p->in[k];
		if (writes(st) & bit(in->base))
			break;
		unsigned further;
		if (is_store(st) && st->base == in->base && st->index == 16 && st->disp == in->disp) {
			uintptr_t a;
			uint64_t was, is;
			if (source(p, st->reg, k, depth - 1, &further) && address(p, further, DEPTH, &a) && address(p, j, DEPTH, &is) && read_memory(is, &was, sizeof was) && read_memory(a, &is, sizeof is) && was == is && !entered(p, further))
				*load = further;
			break;
		}
	}
	return true;
}

bool rs_pointer_source(const greg_t *g, uintptr_t *location, uint64_t *pointer)
{
	static struct path p; /* one thread tells of its crash; stacks may be short */
	uintptr_t pc = (uintptr_t)g[REG_RIP];
	uint64_t is;
	unsigned j;
	p.g = g;
	p.base = pc - BEFORE;
	p.from = 0;
	p.have = sizeof p.code;
	while (p.have > BEFORE + 15 && !read_memory(pc, p.code + BEFORE, p.have - BEFORE))
		p.have -= 8;
	while (p.from < BEFORE && !read_memory(p.base + p.from, p.code + p.from, BEFORE - p.from))
		p.from += 16;
	if (p.have <= BEFORE + 15 || p.from + 2 * STARTS >= BEFORE || !find_path(&p))
		return false;
	const struct instruction *f = &p.in[p.n - 1];
	if (!f->modrm || f->mod == 3 || f->odd || f->index != 16 || f->base >= 16 || f->base == RSP || f->map == 4)
		return false;
	if (!source(&p, f->base, p.n - 1, DEPTH, &j) || entered(&p, j) || !address(&p, j, DEPTH, location))
		return false;
	*pointer = at_fault(&p, f->base);
	return !(*location & 7) && read_memory(*location, &is, sizeof is) && is == *pointer;
}
