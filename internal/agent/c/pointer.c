/* pointer.c: where a pointer that a faulting instruction used was read from: a few instructions before the fault, decoded as far as needed.
 *
 * Ground rules that bite here: called in a handler of a crash: all memory is read by the kernel, nothing is taken for granted. What is claimed rests on three things: the code between the load and the fault was run through (no jump out of it that is
 * always taken, none into it that is seen), no instruction there writes the registers that the address is made of, and the pointer's value lies at that address now. */
#include "pointer.h"
#include "core.h"
#include "decode.h"
#include "os.h"
#include <sys/uio.h>

enum { BEFORE = 192, BEHIND = 64, STARTS = 32, MOST = 128, DEPTH = 6 };

/* --- looking back ------------------------------------------------------------------------------------------------------------------------ */

struct path {
	uintptr_t base;              /* of code */
	const greg_t *g;
	unsigned n;                  /* instructions; the last is the faulting one */
	struct rs_instruction in[MOST];
	uint8_t code[BEFORE + BEHIND + 16];
	unsigned from, have;         /* of code: what could be read */
};

static bool read_memory(uintptr_t at, void *to, size_t n)
{
	struct iovec local = {to, n}, remote = {(void *)at, n};
	return RS_SYS6(SYS_process_vm_readv, rs_os_pid(), &local, 1, &remote, 1, 0) == (long)n;
}

static uintptr_t pc_of(const struct path *p, const struct rs_instruction *in) { return p->base + (uintptr_t)(in->at - p->code); }

static uint64_t at_fault(const struct path *p, unsigned r)
{
	static const uint8_t where[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI, REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
	return (uint64_t)p->g[where[r & 15]];
}

/* Decoding that begins in the middle of an instruction soon falls in step: the way that most beginnings lead to. */
static bool find_path(struct path *p)
{
	unsigned end = BEFORE, votes = 0, all = 0, best = 0;
	struct rs_instruction in;
	uint8_t first[STARTS];
	for (unsigned s = 0; s < STARTS; s++) {
		unsigned at = p->from + s, meets = 0;
		first[s] = 0;
		for (; at < end && rs_decode(&in, p->code + at, p->have - at); at += in.length)
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
		if (p->n == MOST || !rs_decode(&in, p->code + at, p->have - at))
			return false;
		p->in[p->n++] = in;
		if (at < end && rs_decode_leaves(&in))
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
	struct rs_instruction in;
	for (unsigned at = (unsigned)(p->in[0].at - p->code); at < p->have && rs_decode(&in, p->code + at, p->have - at); at += in.length) {
		uintptr_t to = rs_decode_target(&in, p->base + at);
		if (to > lo && to <= hi)
			return true;
	}
	return false;
}

static bool value(const struct path *p, unsigned r, unsigned i, unsigned depth, uint64_t *v);

/* Of the memory operand of instruction j. */
static bool address(const struct path *p, unsigned j, unsigned depth, uintptr_t *a)
{
	const struct rs_instruction *in = &p->in[j];
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

static bool is_load(const struct rs_instruction *in) { return in->map == 0 && in->op == 0x8b && in->rex & 8 && in->mod != 3 && !in->small; }
static bool is_store(const struct rs_instruction *in) { return in->map == 0 && in->op == 0x89 && in->rex & 8 && in->mod != 3 && !in->small; }
static bool is_local(const struct rs_instruction *in) { return (in->base == RBP || in->base == RSP) && in->index == 16; }

/* Who wrote register r last before instruction i; false: not seen. */
static bool writer(const struct path *p, unsigned r, unsigned i, unsigned *j)
{
	while (i-- > 0)
		if (rs_decode_writes(&p->in[i]) & rs_register_bit(r)) {
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
		since |= rs_decode_writes(&p->in[k]) & rs_register_bit(r);
	if (!since) {
		*v = at_fault(p, r);
		return true;
	}
	unsigned j;
	uintptr_t a;
	if (depth == 0 || !writer(p, r, i, &j))
		return false;
	const struct rs_instruction *in = &p->in[j];
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
	const struct rs_instruction *in = &p->in[j];
	if (in->map || in->odd || in->small || !(in->rex & 8))
		return false;
	if ((in->op == 0x8b || in->op == 0x89) && in->mod == 3)
		return source(p, in->op == 0x8b ? in->rm : in->reg, j, depth - 1, load);
	if (!is_load(in))
		return false;
	*load = j;
	/* From a variable of the function that it was just written to: what was written came from somewhere, too. */
	for (unsigned k = j; is_local(in) && k-- > 0;) {
		const struct rs_instruction *st = &p->in[k];
		if (rs_decode_writes(st) & rs_register_bit(in->base))
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
	const struct rs_instruction *f = &p.in[p.n - 1];
	if (!f->modrm || f->mod == 3 || f->odd || f->index != 16 || f->base >= 16 || f->base == RSP || f->map == 4)
		return false;
	if (!source(&p, f->base, p.n - 1, DEPTH, &j) || entered(&p, j) || !address(&p, j, DEPTH, location))
		return false;
	*pointer = at_fault(&p, f->base);
	return !(*location & 7) && read_memory(*location, &is, sizeof is) && is == *pointer;
}
