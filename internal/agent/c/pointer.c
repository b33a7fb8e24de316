/* pointer.c: where a pointer that a crash used was read from. The instructions before it are known with their registers (guardstep.h); from the one that faulted a register is followed back through them to the load that its value came from,
 * and from there through what this stack had of it, as far as it was seen.
 *
 * Ground rules that bite here: on the coordinator, after a crash: all memory is read by the kernel, nothing is taken for granted. An instruction that is not known, and that left the register as it was, is taken to have not written it. */
#include "pointer.h"
#include "decode.h"
#include "guardbreak.h"
#include "guardstep.h"
#include "os.h"
#include <sys/uio.h>
#include <signal.h>
#include <ucontext.h>

enum { DEPTH = 64, NONE = 16, LOCAL = 1 << 20 /* of a stack, from its pointer's red zone up */, RED_ZONE = 128 };

static size_t read_some(uint64_t at, void *to, size_t n)
{
	struct iovec local = {to, n}, remote = {(void *)at, n};
	long r = RS_SYS6(SYS_process_vm_readv, rs_os_tid(), &local, 1, &remote, 1, 0);
	if (r <= 0)
		return 0;
	rs_guard_break_hide(at, to, (size_t)r);
	return (size_t)r;
}

static bool readable(uint64_t at)
{
	uint8_t byte;
	return read_some(at, &byte, 1) == 1;
}

static uint64_t of(const uint64_t *gregs, unsigned r)
{
	static const uint8_t where[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI, REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
	return gregs[where[r & 15]];
}

static uint64_t reg(const struct rs_guard_step *s, unsigned r) { return of(s->gregs, r); }

struct decoded { struct rs_instruction in; uint8_t code[15]; };

static bool decode(const struct rs_guard_step *s, struct decoded *d)
{
	/* A page at a time: the instruction may be the last of its mapping. */
	uint64_t pc = s->gregs[REG_RIP];
	size_t page = RS_PAGE - pc % RS_PAGE, n = read_some(pc, d->code, page < sizeof d->code ? page : sizeof d->code);
	if (n == page && n < sizeof d->code)
		n += read_some(pc + n, d->code + n, sizeof d->code - n);
	return rs_decode(&d->in, d->code, n);
}

static bool memory_operand(const struct rs_instruction *in) { return in->modrm && in->mod != 3; }

/* Of its memory operand; false: a segment's, or an address of 32 bits. */
static bool address(const struct rs_guard_step *s, const struct rs_instruction *in, uint64_t *a)
{
	if (!memory_operand(in) || in->odd == 0x64 || in->odd == 0x65 || in->odd == 0x67)
		return false;
	*a = (uint64_t)(int64_t)in->disp;
	if (in->base == 17)
		*a += s->gregs[REG_RIP] + in->length;
	else if (in->base < 16)
		*a += reg(s, in->base);
	if (in->index < 16)
		*a += reg(s, in->index) << in->scale;
	return true;
}

static uint64_t low_bytes(uint64_t v, unsigned bytes) { return bytes < 8 ? v & ((1ull << 8 * bytes) - 1) : v; }

/* May it be an offset? */
static bool is_small(uint64_t v)
{
	const uint64_t most = 1ull << 32;
	return v + most < 2 * most;
}

/* Of a sum that is no address of anything, whether b is to blame, not a: what is memory is right; what is too large to be an offset is not; of two that are small, of which a pointer that is null, and was added to, is one, the null. */
static bool worse(uint64_t a, uint64_t b)
{
	if (readable(a) || readable(b))
		return readable(a);
	return is_small(a) && (!is_small(b) || (a != 0 && b == 0));
}

/* Of an address that is no good: the register to blame, `part` if it is not all of it. */
static unsigned blamed(const struct rs_guard_step *s, const struct rs_instruction *in, bool *part)
{
	unsigned base = in->base < 16 ? in->base : NONE, index = in->index < 16 ? in->index : NONE;
	if (base == NONE || index == NONE)
		return base == NONE ? index : base;
	bool is = in->scale == 0 ? worse(reg(s, base), reg(s, index)) : readable(reg(s, base));
	*part |= is;
	return is ? index : base;
}

enum what { UNKNOWN, MOVED /* from register from */, LOADED /* bytes from memory */, CONSTANT, EARLIER /* than the first step */ };
struct origin { enum what what; unsigned from, bytes; uint64_t location; bool term; uint64_t value; /* term: this was read, and is not what the register has then */ };

static struct origin unknown(void) { return (struct origin){.what = UNKNOWN}; }
static struct origin constant(void) { return (struct origin){.what = CONSTANT}; }
static struct origin moved(unsigned from)
{
	struct origin o = {.what = MOVED, .from = from};
	return from < 16 ? o : unknown();
}

/* What lies at an address, of so many bytes. */
static struct origin lies(uint64_t at, unsigned bytes) { return (struct origin){.what = LOADED, .location = at, .bytes = bytes}; }

static struct origin loaded(const struct rs_guard_step *s, const struct rs_instruction *in, unsigned bytes)
{
	struct origin o = {.what = LOADED, .bytes = bytes};
	return address(s, in, &o.location) ? o : unknown();
}

/* r = r op what modrm names, which gives `sum`. */
static struct origin added(const struct rs_guard_step *s, const struct rs_instruction *in, unsigned r, unsigned bytes, uint64_t sum)
{
	bool adds = in->op < 4;
	uint64_t term = low_bytes(adds ? sum - reg(s, r) : reg(s, r) - sum, bytes);
	if (adds ? !worse(reg(s, r), term) : !readable(reg(s, r)))
		return moved(r);
	struct origin o = in->mod == 3 ? moved(in->op & 2 ? in->rm : in->reg) : loaded(s, in, bytes);
	o.term = true, o.value = term;
	return o;
}

/* r = a constant times what modrm names, which gives `product`. */
static struct origin multiplied(const struct rs_guard_step *s, const struct rs_instruction *in, unsigned bytes, uint64_t product)
{
	const uint8_t *imm = in->at + in->length - in->imm;
	int64_t factor = in->imm == 1 ? (int8_t)imm[0] : (int32_t)((uint32_t)imm[0] | (uint32_t)imm[1] << 8 | (uint32_t)imm[2] << 16 | (uint32_t)imm[3] << 24), is = bytes == 8 ? (int64_t)product : (int32_t)product;
	if (in->mod == 3)
		return moved(in->rm);
	struct origin o = factor > 0 && is % factor == 0 ? loaded(s, in, bytes) : unknown(); /* more than the register holds */
	o.term = true, o.value = o.what == LOADED ? low_bytes((uint64_t)(is / factor), bytes) : 0;
	return o;
}

/* What register r, which this instruction may write, has behind it, which is `is`. */
static struct origin written(const struct rs_guard_step *s, const struct rs_instruction *in, unsigned r, uint64_t is)
{
	uint8_t op = in->op;
	unsigned bytes = in->rex & 8 ? 8 : 4, low = (unsigned)(op & 7) | (in->rex & 1u) << 3;
	bool part;
	if (in->small || in->odd)
		return unknown();
	if (in->map == 1) {
		if (in->reg == r && (op == 0xb6 || op == 0xb7 || op == 0xbe || op == 0xbf))
			return in->mod == 3 ? moved(in->rm) : loaded(s, in, op & 1 ? 2 : 1);
		return in->reg == r && op == 0xaf ? moved(r) : unknown();
	}
	if (in->map != 0)
		return unknown();
	switch (op) {
	case 0x89: return moved(in->reg);
	case 0x8b: return in->mod == 3 ? moved(in->rm) : loaded(s, in, bytes);
	case 0x63: return in->mod == 3 ? moved(in->rm) : loaded(s, in, 4);
	case 0x8d: return moved(blamed(s, in, &part));
	case 0x01: case 0x03: case 0x29: case 0x2b: return added(s, in, r, bytes, is);
	case 0x31: case 0x33: return in->mod == 3 && in->reg == in->rm ? constant() : unknown();
	case 0x81: case 0x83: case 0xc1: case 0xd1: return moved(r);
	case 0x69: case 0x6b: return multiplied(s, in, bytes, is);
	case 0xc7: return constant();
	case 0x98: return moved(RAX);
	case 0xff: return (in->reg & 7) < 2 ? moved(r) : unknown();
	default:
		if (op >= 0x58 && op <= 0x5f && low == r)
			return lies(reg(s, RSP), 8);
		return op >= 0xb8 && op <= 0xbf ? constant() : unknown();
	}
}

/* The registers that this may write, where the next step shows what a call did. */
static unsigned writes(const struct rs_instruction *in)
{
	if (in->map == 1 && in->op == 0x05)
		return rs_register_bit(RAX) | rs_register_bit(RCX) | rs_register_bit(11);
	if (in->map == 0 && (in->op == 0xe8 || in->op == 0xc2 || in->op == 0xc3 || (in->op == 0xff && (in->reg & 7) >= 2)))
		return rs_register_bit(RSP);
	if (in->map == 0 && in->op == 0xc9)
		return rs_register_bit(RSP) | rs_register_bit(RBP);
	return rs_decode_writes(in);
}

/* Where register r, as it is before step i, came from; *at: the step. */
static struct origin origin(unsigned r, uint32_t i, uint32_t *at)
{
	const struct rs_guard_step *after = rs_guard_step_back(i), *s;
	for (uint32_t k = i + 1; (s = rs_guard_step_back(k)); after = s, k++) {
		struct decoded d;
		if (s->what == RS_GUARD_STEP_BREAK)
			break;
		if (s->what == RS_GUARD_STEP_CALL) {
			/* Code that reads another register behind a call knows that the call leaves it alone (-fipa-ra). */
			if (r == RAX || (r == RDX && (!reg(s, r) || reg(s, r) != reg(after, r))))
				return unknown();
			continue;
		}
		bool known = decode(s, &d);
		if (known && !(writes(&d.in) & rs_register_bit(r)))
			continue;
		struct origin o = known ? written(s, &d.in, r, reg(after, r)) : unknown();
		if (o.what == UNKNOWN && reg(s, r) == reg(after, r))
			continue;
		*at = k;
		return o;
	}
	return (struct origin){.what = EARLIER};
}

enum stored { NOT_SEEN, OTHERWISE, REGISTER };

/* Did an instruction before step i store this value there? Its step, and register. */
static enum stored stored(const struct rs_pointer *p, uint32_t i, uint32_t *at, unsigned *r)
{
	const struct rs_guard_step *s;
	for (uint32_t k = i + 1; (s = rs_guard_step_back(k)); k++) {
		struct decoded d;
		uint64_t a;
		if (s->what == RS_GUARD_STEP_BREAK)
			break;
		if (s->what != RS_GUARD_STEP_ONE || !decode(s, &d) || d.in.map != 0)
			continue;
		bool push = d.in.op >= 0x50 && d.in.op <= 0x57 && !d.in.small;
		if (push)
			a = reg(s, RSP) - 8;
		else if (d.in.op != 0x89 || d.in.small || (d.in.rex & 8 ? 8u : 4u) < p->bytes || !address(s, &d.in, &a))
			continue;
		if (a != p->location)
			continue;
		*at = k;
		*r = push ? (unsigned)(d.in.op & 7) | (d.in.rex & 1u) << 3 : d.in.reg;
		return low_bytes(reg(s, *r), p->bytes) == p->value ? REGISTER : OTHERWISE;
	}
	return NOT_SEEN;
}

bool rs_pointer_jumps(const struct rs_instruction *in) { return (in->map == 0 && (in->op & 0xf0) == 0x70) || (in->map == 1 && (in->op & 0xf0) == 0x80); }

bool rs_pointer_keeps_flags(const struct rs_instruction *in)
{
	if (in->map == 1)
		return in->op == 0x1e || in->op == 0x1f || in->op == 0xb6 || in->op == 0xb7 || in->op == 0xbe || in->op == 0xbf || (in->op & 0xf0) == 0x40 || (in->op & 0xf0) == 0x90;
	return in->map == 0 && ((in->op >= 0x88 && in->op <= 0x8b) || in->op == 0x8d || in->op == 0x63 || in->op == 0x90 || (in->op >= 0xb0 && in->op <= 0xbf) || in->op == 0xc6 || in->op == 0xc7 || in->op == 0xe9 || in->op == 0xeb);
}

/* What a comparison, or an operation by whose result a jump goes, looked at: an operand in memory, or the register that is not a constant. */
static struct origin compared(const struct rs_guard_step *s, const struct rs_instruction *in, unsigned *bytes)
{
	unsigned op = in->op, low = op & 7;
	bool arithmetic = op < 0x40 && low < 6, immediate = op == 0x80 || op == 0x81 || op == 0x83, tests = op == 0x84 || op == 0x85 || ((op == 0xf6 || op == 0xf7) && (in->reg & 7) == 0);
	if (in->map != 0 || (!arithmetic && !immediate && !tests && op != 0xa8 && op != 0xa9))
		return unknown();
	*bytes = !(op & 1) ? 1 : in->small ? 2 : in->rex & 8 ? 8 : 4;
	if (op == 0xa8 || op == 0xa9 || (arithmetic && low >= 4))
		return moved(RAX);
	struct origin o = memory_operand(in) ? loaded(s, in, *bytes) : unknown();
	if (o.what == LOADED)
		return o;
	/* cmp and the like by a segment's word: a stack protector. */
	unsigned r = memory_operand(in) || (arithmetic && low >= 2) ? in->reg : in->rm;
	return (memory_operand(in) && !arithmetic) || (*bytes == 1 && r >= 4 && !in->rex) ? unknown() : moved(r);
}

/* What the last condition looked at before the call that is the end of the steps, in that function; *i: the step. EARLIER: none was met. */
static struct origin condition(uint32_t *i, unsigned *bytes)
{
	const struct rs_guard_step *end = rs_guard_step_back(0), *s;
	bool jumped = false;
	for (uint32_t k = 1; (s = rs_guard_step_back(k)) && s->what != RS_GUARD_STEP_BREAK; k++) {
		struct decoded d;
		/* Its room on the stack may have been made behind the condition. */
		if (s->what != RS_GUARD_STEP_ONE || reg(s, RSP) < reg(end, RSP) || reg(s, RSP) > rs_guard_step_top())
			continue;
		if (!decode(s, &d))
			return unknown();
		if (!jumped) {
			jumped = rs_pointer_jumps(&d.in);
		} else if (!rs_pointer_keeps_flags(&d.in)) {
			*i = k;
			return compared(s, &d.in, bytes);
		}
	}
	return (struct origin){.what = EARLIER};
}

enum { OBJECT = 64 /* of what is passed to functions of ours none is longer */ };
/* How many objects a function of ours takes, a pointer each, in rdi and rsi; 0: it is none that is known for that. */
static unsigned objects_of(uint64_t function)
{
	static const struct { const void *function; unsigned objects; } known[] = {
#undef R
#undef R_AS
#define R(ret, name, version, args) {(const void *)(uintptr_t)name, 1},
#define R_AS(ret, field, name, version, args)
		{(const void *)(uintptr_t)pthread_cond_wait, 2}, {(const void *)(uintptr_t)pthread_cond_timedwait, 2},
		RS_REAL_SYNC
#undef R
#undef R_AS
	};
	for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
		if ((uintptr_t)known[i].function == function)
			return known[i].objects;
	return 0;
}

/* What the crash used, before step *i: a register (MOVED), or what lies in memory (LOADED); *bytes of it; *as: enum Used, if it is all of it, *part: it is not. */
static struct origin used(uint32_t *i, unsigned *bytes, unsigned *as, bool *part)
{
	const struct rs_guard_step *s = rs_guard_step_back(0);
	struct decoded d;
	*as = RS_USED_POINTER;
	*bytes = 8;
	*part = false;
	if (rs_guard_step_signal() == SIGABRT) {
		*as = RS_USED_CONDITION;
		return condition(i, bytes);
	}
	uint64_t function, fault;
	if (rs_guard_step_called(&function, &fault)) {
		unsigned n = objects_of(function);
		for (unsigned k = 0; k < n; k++) {
			uint64_t object = reg(s, k ? RSI : RDI);
			if (fault - object < OBJECT || (object + (1ull << 47)) >> 48 /* nothing can be there, and the processor does not say where it was */)
				return moved(k ? RSI : RDI);
		}
		return unknown();
	}
	if (decode(s, &d)) {
		bool plain = d.in.map == 0, divides = plain && (d.in.op & 0xfe) == 0xf6 && (d.in.reg & 6) == 6;
		if (divides && rs_guard_step_signal() == SIGFPE) {
			*as = RS_USED_DIVISOR;
			*bytes = d.in.op == 0xf6 ? 1 : d.in.small ? 2 : d.in.rex & 8 ? 8 : 4;
			return d.in.mod != 3 ? loaded(s, &d.in, *bytes) : *bytes > 1 || d.in.rm < 4 || d.in.rex ? moved(d.in.rm) : unknown();
		}
		if (plain && d.in.op == 0xc3) { /* to an address that there cannot be */
			*as = RS_USED_RETURN;
			return lies(reg(s, RSP), 8);
		}
		if (memory_operand(&d.in) && (d.in.map != 4 || d.in.op < 0x90 || d.in.op > 0x93 /* gathers */) && d.in.base != RSP)
			return moved(blamed(s, &d.in, part));
		if (plain && d.in.op >= 0xa4 && d.in.op <= 0xa7)
			return moved(readable(reg(s, RSI)) ? RDI : RSI);
		if (plain && (d.in.op == 0xac || d.in.op == 0xad))
			return moved(RSI);
		return plain && (d.in.op == 0xaa || d.in.op == 0xab || d.in.op == 0xae || d.in.op == 0xaf) ? moved(RDI) : unknown();
	}
	/* There is no code there: who went there? */
	if (!(s = rs_guard_step_back(1)) || s->what == RS_GUARD_STEP_BREAK) /* the processor told of the write of the return address when the call had been made */
		return (struct origin){.what = EARLIER};
	if (s->what != RS_GUARD_STEP_ONE || !decode(s, &d) || d.in.map != 0)
		return unknown();
	*i = 1;
	if (d.in.op == 0xc3) {
		*as = RS_USED_RETURN;
		return lies(reg(s, RSP), 8);
	}
	if (d.in.op != 0xff || ((d.in.reg & 7) != 2 && (d.in.reg & 7) != 4))
		return unknown();
	return d.in.mod == 3 ? moved(d.in.rm) : loaded(s, &d.in, 8);
}

/* The value's beginning, or where it goes on from steps that end where these begin. */
static bool begin(struct rs_pointer_search *q, uint32_t *i, struct origin *o)
{
	if (q->state == RS_POINTER_REGISTER) {
		*o = moved(q->r);
		return reg(rs_guard_step_back(0), q->r) == q->holds;
	}
	*o = used(i, &q->bytes, &q->as, &q->part);
	if (o->what == LOADED)
		return read_some(o->location, &q->value, q->bytes) == q->bytes;
	if (o->what != MOVED)
		return false;
	q->value = low_bytes(reg(rs_guard_step_back(*i), o->from), q->bytes);
	/* In the recording it may have been another one. (Of a call what faulted says so.) */
	uint64_t function, fault;
	return *i != 0 || rs_guard_step_called(&function, &fault) || q->value == low_bytes(of(rs_guard_step_crash(), o->from), q->bytes);
}

bool rs_pointer_source(struct rs_pointer_search *q)
{
	uint32_t i = 0, at = 0;
	unsigned r = NONE;
	struct origin o = unknown();
	bool again = q->state == RS_POINTER_STACK;
	if (!again && !begin(q, &i, &o))
		return o.what == UNKNOWN;
	if (!again)
		at = i;
	for (unsigned depth = 0; depth < DEPTH; depth++) {
		if (o.what == LOADED && o.location % o.bytes == 0) {
			uint64_t was = r == NONE ? q->value : o.term ? o.value : low_bytes(reg(rs_guard_step_back(at - 1), r), o.bytes);
			q->p = (struct rs_pointer){.location = o.location, .value = was, .bytes = o.bytes, .used = q->part || was != q->value ? q->as + 1 : q->as};
			q->found = true;
			again = o.location + RED_ZONE - reg(rs_guard_step_back(at), RSP) <= LOCAL;
			if (!again)
				return true;
		} else if (o.what == MOVED) {
			r = o.from, i = at;
		} else if (!again) {
			if (o.what == EARLIER)
				q->state = RS_POINTER_REGISTER, q->r = r, q->holds = reg(rs_guard_step_back(i), r);
			return o.what != EARLIER;
		}
		/* A variable of the function, or what was pushed: what was put there came from somewhere, too. */
		if (again) {
			enum stored how = stored(&q->p, at, &i, &r);
			if (how == NOT_SEEN)
				q->state = RS_POINTER_STACK;
			if (how != REGISTER)
				return how != NOT_SEEN;
			again = false;
		}
		o = origin(r, i, &at);
	}
	return true;
}

bool rs_pointer_store(struct rs_pointer_search *q, const uint64_t *behind, uint64_t place, unsigned bytes, uint64_t value, uint64_t *pc)
{
	enum { LONGEST = 11 };
	/* A prefix may be left out in what is decoded, so the longest. */
	for (unsigned n = LONGEST; n >= 2; n--) {
		struct rs_guard_step s;
		struct decoded d;
		uint64_t a;
		rs_os_copy(s.gregs, behind, sizeof s.gregs);
		s.gregs[REG_RIP] -= n;
		if (!decode(&s, &d) || d.in.length != n || d.in.map != 0 || d.in.small)
			continue;
		if (d.in.op == 0x89 ? address(&s, &d.in, &a) && (d.in.rex & 8 ? 8u : 4u) >= bytes : d.in.op >= 0x50 && d.in.op <= 0x57 && (a = reg(&s, RSP), true)) {
			unsigned r = d.in.op == 0x89 ? d.in.reg : (unsigned)(d.in.op & 7) | (d.in.rex & 1u) << 3;
			*pc = s.gregs[REG_RIP];
			*q = (struct rs_pointer_search){.state = RS_POINTER_REGISTER, .r = r, .holds = reg(&s, r), .value = value, .bytes = bytes, .as = RS_USED_COPIED};
			if (a == place && r != RSP && low_bytes(q->holds, bytes) == value)
				return true;
		}
	}
	return false;
}

uint64_t rs_pointer_stores(const uint64_t *gregs)
{
	struct rs_guard_step s = {.what = RS_GUARD_STEP_ONE};
	struct decoded d;
	uint64_t a;
	rs_os_copy(s.gregs, gregs, sizeof s.gregs);
	if (!decode(&s, &d) || d.in.map != 0)
		return 0;
	if (d.in.op >= 0x50 && d.in.op <= 0x57)
		return reg(&s, RSP) - 8;
	return d.in.op == 0x89 && address(&s, &d.in, &a) ? a : 0;
}

unsigned rs_pointer_addressed(const uint64_t *gregs, uint64_t *value)
{
	struct rs_guard_step s = {.what = RS_GUARD_STEP_ONE};
	struct decoded d;
	unsigned n = 0;
	rs_os_copy(s.gregs, gregs, sizeof s.gregs);
	if (!readable(gregs[REG_RIP])) {
		value[n++] = gregs[REG_RIP];
	} else if (!decode(&s, &d)) {
		return 0;
	} else if (memory_operand(&d.in)) {
		if (d.in.base < 16)
			value[n++] = reg(&s, d.in.base);
		if (d.in.index < 16)
			value[n++] = reg(&s, d.in.index);
	} else if (d.in.map == 0 && d.in.op == 0xff && d.in.modrm) {
		value[n++] = reg(&s, d.in.rm);
	} else if (d.in.map == 0 && d.in.op == 0xc3) {
		n = read_some(gregs[REG_RSP], value, 8) == 8;
	} else if (d.in.map == 0 && d.in.op >= 0xa4 && d.in.op <= 0xaf) {
		value[n++] = reg(&s, RSI);
		value[n++] = reg(&s, RDI);
	}
	return n;
}
