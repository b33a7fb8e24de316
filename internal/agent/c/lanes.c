/* lanes.c: the accesses of instructions whose bytes the registers decide, or the memory: masked moves, gathers, bits by number, strings that stop early, processor states, moves by a condition,
 * stores of vptrs. What the instruction is
 * says a Call's data (internal/access/lanes.go); the registers, vectors too, are those that the program has there.
 *
 * What is told is what the instruction will access as things are. Repeated cmps and scas are looked ahead for: should another thread change their bytes meanwhile, which is a race that is told, they
 * may stop elsewhere.
 *
 * Ground rules: as access.c's. Memory is looked at by the kernel, which answers where it cannot be read: the instruction's own fault is the program's. */
#include "access.h"
#include <cpuid.h>

enum { RAX, RCX, DIRECTION = 1 << 10, HEADER = 512, HEADER_BYTES = 64 };
enum { NO_BASE = 16, RIP_BASE, NO_INDEX = 63 };
enum { SIGNS, OPMASK, PACKED, GATHER, GATHER_BY, BIT, TABLE, STRINGS, STATE, CONDITION, STORED };
enum { FXSAVE, FXRSTOR, XSAVE, XSAVEOPT, XSAVEC, XRSTOR };
struct what { uint64_t data; unsigned what, by, elem, width, index; bool wide, single; };

static struct what what_of(uint64_t data)
{
	return (struct what){data, data >> 46 & 15, data >> 50 & 31, 1u << (data >> 55 & 3), 8u << (data >> 57 & 3), data >> 37 & 63, data >> 59 & 1, data >> 60 & 1};
}

/* --- the registers of vectors ------------------------------------------------------------------------------------------------------------ */

/* 16 bytes each: store xmm 0 to 15, ymm 0 to 15, zmm 0 to 31, mm 0 to 7 at rdi; return 16 bits of k 0 to 7, 64 bits of these. */
extern const char rs_lane_code[] RS_HIDDEN;
enum { LANE_XMM = 0, LANE_YMM = 16, LANE_ZMM = 32, LANE_MM = 64, LANE_K = 72, LANE_K_LONG = 80, LANE_BYTES = 16 };
__asm__(".text\n.p2align 4\n.globl rs_lane_code\n.hidden rs_lane_code\n.type rs_lane_code, @function\nrs_lane_code:\n.cfi_startproc\n"
	".irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n.p2align 4\n	movups %xmm\\i, (%rdi)\n	ret\n.endr\n"
	".irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15\n.p2align 4\n	vmovups %ymm\\i, (%rdi)\n	ret\n.endr\n"
	".irp i, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31\n.p2align 4\n	vmovups %zmm\\i, (%rdi)\n	ret\n.endr\n"
	".irp i, 0, 1, 2, 3, 4, 5, 6, 7\n.p2align 4\n	movq %mm\\i, (%rdi)\n	ret\n.endr\n"
	".irp i, 0, 1, 2, 3, 4, 5, 6, 7\n.p2align 4\n	kmovw %k\\i, %eax\n	ret\n.endr\n"
	".irp i, 0, 1, 2, 3, 4, 5, 6, 7\n.p2align 4\n	kmovq %k\\i, %rax\n	ret\n.endr\n"
	".cfi_endproc\n.size rs_lane_code, .-rs_lane_code\n");

static inline uint64_t lane_run(unsigned slot, void *to)
{
	return ((uint64_t(*)(void *))(uintptr_t)(rs_lane_code + LANE_BYTES * slot))(to);
}

/* The first n bytes of a vector register, which may be stored behind too. 8: of MMX. */
static void vector(unsigned number, unsigned n, uint8_t to[64])
{
	lane_run(n == 8 ? LANE_MM + number % 8 : n > 32 || number >= 16 ? LANE_ZMM + number : (n > 16 ? LANE_YMM : LANE_XMM) + number, to);
}

/* The first bits of a mask register: more than 16 only where there are instructions for them. */
static uint64_t opmask(unsigned number, unsigned bits)
{
	uint64_t k = lane_run((bits > 16 ? LANE_K_LONG : LANE_K) + number % 8, NULL);
	return bits < 64 ? k & ((1ull << bits) - 1) : k;
}

static uint64_t load(const uint8_t *from, unsigned n)
{
	uint64_t v = 0;
	for (unsigned i = 0; i < n; i++)
		v |= (uint64_t)from[i] << 8 * i;
	return v;
}

/* A bit for each element of a vector register whose highest bit is set. */
static uint64_t signs(unsigned number, unsigned elem, unsigned bytes)
{
	uint8_t v[64] = {0};
	uint64_t mask = 0;
	vector(number, bytes, v);
	for (unsigned i = 0; i < bytes / elem; i++)
		mask |= (uint64_t)(v[(i + 1) * elem - 1] >> 7) << i;
	return mask;
}

/* --- the accesses -------------------------------------------------------------------------------------------------------------------------- */

static void add(const struct rs_access_context *c, struct accesses *list, uint64_t addr, uint64_t size, unsigned kind)
{
	if (size && list->count < RS_LANES_MOST) {
		list->a[list->count] = (struct touch){.addr = addr, .pc = c->site, .size = size};
		list->kind[list->count++] = kind;
	}
}

/* Elements side by side, those together that follow each other. */
static void elements(const struct rs_access_context *c, struct accesses *list, uint64_t addr, unsigned elem, uint64_t mask, unsigned kind)
{
	for (unsigned i = 0; i < 64 && mask >> i; i++) {
		unsigned first = i;
		while (i < 64 && mask >> i & 1)
			i++;
		add(c, list, addr + (uint64_t)first * elem, (uint64_t)(i - first) * elem, kind);
	}
}

/* An address without the index. */
static uint64_t base_of(const struct rs_access_context *c, uint64_t data)
{
	unsigned base = data >> 32 & 31;
	uint64_t addr = (uint64_t)(int64_t)(int32_t)data, fs = 0;
	if (base == RIP_BASE)
		addr += c->next;
	else if (base < NO_BASE)
		addr += c->gpr[base];
	if (data >> 45 & 1)
		__asm__("mov %%fs:0, %0" : "=r"(fs));
	return addr + fs;
}

static inline unsigned scale_of(uint64_t data) { return data >> 43 & 3; }

static void gather(const struct rs_access_context *c, struct accesses *list, const struct what *w, unsigned kind)
{
	unsigned n = w->width / 4, size = w->wide ? 8 : 4;
	uint64_t mask = w->what == GATHER ? signs(w->by, w->elem, n * w->elem < 16 ? 16 : n * w->elem) : opmask(w->by, n), base = base_of(c, w->data);
	uint8_t index[64] = {0};
	vector(w->index, n * size < 16 ? 16 : n * size, index);
	for (unsigned i = 0; i < n; i++) {
		uint64_t x = load(index + i * size, size);
		if (mask >> i & 1)
			add(c, list, base + ((w->wide ? x : (uint64_t)(int64_t)(int32_t)x) << scale_of(w->data)), w->elem, kind);
	}
}

/* The bits are numbered from the address on, up and down; what is accessed is the operand in which the bit lies. */
static void bit(const struct rs_access_context *c, struct accesses *list, const struct what *w, unsigned size, unsigned kind)
{
	uint64_t addr = base_of(c, w->data);
	int64_t n = (int64_t)c->gpr[w->by];
	if (w->index != NO_INDEX)
		addr += c->gpr[w->index & 15] << scale_of(w->data);
	n = size == 2 ? (int16_t)n : size == 4 ? (int32_t)n : n;
	add(c, list, addr + (uint64_t)(n >> (size == 2 ? 4 : size == 4 ? 5 : 6)) * size, size, kind);
}

/* As many elements as are there before a page ends, in both; at least one. */
static uint64_t piece(uint64_t addr, unsigned unit, bool down, uint64_t n)
{
	uint64_t room = down ? (addr & 4095) / unit + 1 : (4096 - (addr & 4095)) / unit;
	return n < room ? n : room ? room : 1;
}

static void strings(const struct rs_access_context *c, struct accesses *list, const struct what *w, unsigned unit)
{
	enum { MOST = 256 };
	uint8_t one[MOST], two[MOST];
	bool down = c->flags & DIRECTION, stop = false;
	uint64_t done = 0, all = c->gpr[RCX];
	while (done < all && !stop) {
		uint64_t at[2] = {0}, n = all - done < MOST / unit ? all - done : MOST / unit;
		for (unsigned i = 0; i < (w->wide ? 2 : 1); i++) {
			at[i] = down ? c->addr[i] - done * unit : c->addr[i] + done * unit;
			n = piece(at[i], unit, down, n);
		}
		uint64_t back = down ? (n - 1) * unit : 0;
		if (!rs_peek(one, at[0] - back, n * unit) || (w->wide && !rs_peek(two, at[1] - back, n * unit)))
			break;
		for (uint64_t i = 0; i < n && !stop; i++, done++) {
			uint64_t place = (down ? n - 1 - i : i) * unit, x = load(one + place, unit);
			uint64_t y = w->wide ? load(two + place, unit) : unit == 8 ? c->gpr[RAX] : c->gpr[RAX] & ((1ull << 8 * unit) - 1);
			stop = (x == y) == w->single;
		}
	}
	for (unsigned i = 0; done && i < (w->wide ? 2 : 1); i++)
		add(c, list, down ? c->addr[i] - (done - 1) * unit : c->addr[i], done * unit, READ | REPEATED);
}

/* Whether a condition holds, numbered as in opcodes: the odd ones are the opposites. */
static bool holds(unsigned condition, uint64_t flags)
{
	bool carry = flags & 1, parity = flags >> 2 & 1, zero = flags >> 6 & 1, sign = flags >> 7 & 1, overflow = flags >> 11 & 1;
	const bool is[] = {overflow, carry, zero, carry || zero, sign, parity, sign != overflow, zero || sign != overflow};
	return is[condition >> 1 & 7] != (condition & 1);
}

/* Words that a store leaves as they are count as read, those that `keeps` has. Where that cannot be seen, or is not what matters (lines.c: the line goes from processor to processor all the same), all is written. */
static void stored(const struct rs_access_context *c, struct accesses *list, const struct what *w, unsigned size)
{
	uint64_t was[2], keeps = w->data >> 55 & 3;
	uint8_t is[64] = {0};
	if (w->single) {
		uint64_t v = w->wide ? (uint64_t)(int64_t)(int32_t)w->data : c->gpr[w->by & 15];
		for (unsigned i = 0; i < 8; i++)
			is[i] = (uint8_t)(v >> 8 * i);
	} else
		vector(w->by, 16, is);
	if (rs_config.lines || !rs_peek(was, c->addr[0], size))
		keeps = 0;
	for (unsigned i = 0; i < size / 8; i++)
		if (keeps >> i & 1 && was[i] != load(is + 8 * i, 8))
			keeps &= ~(1ull << i);
	if (!keeps) {
		add(c, list, c->addr[0], size, WRITE);
		return;
	}
	for (unsigned i = 0; i < size / 8; i++)
		add(c, list, c->addr[0] + 8 * i, 8, keeps >> i & 1 ? READ | REPEATED : WRITE | REPEATED);
}

/* --- processor states (Intel SDM vol. 1, 10.5 and 13.4) ------------------------------------------------------------------------------------ */

/* Where a component lies in the standard format; cpuid may be a trap to a hypervisor, and is asked once. */
static bool component(unsigned i, unsigned *offset, unsigned *size, bool *aligned)
{
	static struct { uint32_t offset, size, known; } was[64]; /* who comes second writes the same */
	if (!__atomic_load_n(&was[i].known, __ATOMIC_ACQUIRE)) {
		unsigned a, b, x, d;
		if (!__get_cpuid_count(0xd, i, &a, &b, &x, &d))
			return false;
		__atomic_store_n(&was[i].size, a, __ATOMIC_RELAXED);
		__atomic_store_n(&was[i].offset, b, __ATOMIC_RELAXED);
		__atomic_store_n(&was[i].known, 1 + (x >> 1 & 1), __ATOMIC_RELEASE);
	}
	*offset = __atomic_load_n(&was[i].offset, __ATOMIC_RELAXED);
	*size = __atomic_load_n(&was[i].size, __ATOMIC_RELAXED);
	*aligned = __atomic_load_n(&was[i].known, __ATOMIC_RELAXED) == 2;
	return *size != 0;
}

/* Components behind the header, those of `which` that are in `laid` too if the area is compact. */
static void components(const struct rs_access_context *c, struct accesses *list, uint64_t which, bool compact, uint64_t laid, unsigned kind)
{
	uint64_t next = HEADER + HEADER_BYTES;
	for (unsigned i = 2; i < 63; i++) {
		unsigned offset, size;
		bool aligned;
		if (!((compact ? laid : which) >> i & 1) || !component(i, &offset, &size, &aligned))
			continue;
		if (compact) {
			next = aligned ? (next + 63) & -64ull : next;
			offset = (unsigned)next;
			next += size;
		}
		if (which >> i & 1)
			add(c, list, c->addr[0] + offset, size, kind);
	}
}

/* The first part, as fxsave has it. Processors of AMD leave the pointers of the last x87 instruction, bytes 6 to 23, as they are mostly; nobody writes what is behind the registers. */
static void legacy(const struct rs_access_context *c, struct accesses *list, uint64_t which, unsigned kind)
{
	uint64_t at = c->addr[0];
	if (which & 1)
		add(c, list, at, 5, kind);
	if (which & 6)
		add(c, list, at + 24, 8, kind);
	if (which & 1)
		for (unsigned i = 0; i < 8; i++)
			add(c, list, at + 32 + (uint64_t)i * 16, 10, kind);
	if (which & 2)
		add(c, list, at + 160, 256, kind);
}

/* Which components are not as they are after a reset; none if the processor does not tell. */
static uint64_t in_use(void)
{
	static uint32_t tells; /* 1 + whether it does */
	uint32_t a, b, x, d, known = __atomic_load_n(&tells, __ATOMIC_RELAXED);
	if (!known) {
		known = 1 + (__get_cpuid_count(0xd, 1, &a, &b, &x, &d) && a >> 2 & 1);
		__atomic_store_n(&tells, known, __ATOMIC_RELAXED);
	}
	if (known == 1)
		return 0;
	__asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(1));
	return (uint64_t)d << 32 | a;
}

static void state(const struct rs_access_context *c, struct accesses *list, unsigned which)
{
	uint64_t header[3] = {0}, at = c->addr[0], asked = 7;
	uint32_t a, d;
	if (which >= XSAVE) {
		__asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
		asked = ((uint64_t)d << 32 | a) & (c->gpr[2] << 32 | (c->gpr[RAX] & 0xffffffff));
	}
	switch (which) {
	case FXSAVE:
		legacy(c, list, asked, WRITE | REPEATED);
		break;
	case FXRSTOR:
		legacy(c, list, asked, READ | REPEATED);
		break;
	case XSAVE:
		legacy(c, list, asked, WRITE | REPEATED);
		add(c, list, at + HEADER, 8, READ | WRITE | REPEATED);
		components(c, list, asked, false, 0, WRITE | REPEATED);
		break;
	case XSAVEOPT: /* what did not change since xrstor may be left out, and nobody says whether it is */
		add(c, list, at + HEADER, 8, READ | WRITE | REPEATED);
		break;
	case XSAVEC:
		legacy(c, list, asked & in_use() & 3, WRITE | REPEATED);
		add(c, list, at + HEADER, 16, WRITE | REPEATED);
		components(c, list, asked & in_use(), true, asked, WRITE | REPEATED);
		break;
	case XRSTOR:
		add(c, list, at + HEADER, HEADER_BYTES, READ | REPEATED);
		if (rs_peek(header, at + HEADER, sizeof header)) {
			bool compact = header[1] >> 63;
			legacy(c, list, (asked & header[0] & 3) | (!compact && asked & 6 ? 4 : 0), READ | REPEATED);
			components(c, list, asked & header[0], compact, header[1], READ | REPEATED);
		}
		break;
	default:
		break;
	}
}

void rs_lanes(const struct rs_access_context *c, struct accesses *list)
{
	struct what w = what_of(c->data);
	unsigned size = c->info & 0xffff, kind = (unsigned)(c->info >> 16 & 3), n = w.width / w.elem;
	bool locked = c->info >> 18 & 1;
	switch (w.what) {
	case SIGNS:
		elements(c, list, c->addr[0], w.elem, signs(w.by, w.elem, w.width), kind | REPEATED);
		break;
	case OPMASK:
		if (w.single)
			add(c, list, c->addr[0], opmask(w.by, n) ? size : 0, kind | REPEATED);
		else
			elements(c, list, c->addr[0], w.elem, opmask(w.by, n), kind | REPEATED);
		break;
	case PACKED:
		add(c, list, c->addr[0], w.elem * (unsigned)__builtin_popcountll(opmask(w.by, n)), kind | REPEATED);
		break;
	case GATHER:
	case GATHER_BY:
		gather(c, list, &w, kind | REPEATED);
		break;
	case BIT:
		bit(c, list, &w, size, kind | (locked ? ATOMIC : 0));
		break;
	case TABLE:
		add(c, list, base_of(c, w.data) + (c->gpr[RAX] & 0xff), 1, READ);
		break;
	case STRINGS:
		strings(c, list, &w, size);
		break;
	case STATE:
		state(c, list, w.by);
		break;
	case STORED:
		stored(c, list, &w, size);
		break;
	case CONDITION:
		add(c, list, c->addr[0], holds(w.by, c->flags) ? size : 0, READ);
		break;
	default:
		break;
	}
}
