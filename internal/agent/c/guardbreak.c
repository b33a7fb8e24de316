/* guardbreak.c: see guardbreak.h. Ground rules: guard.h's.
 *
 * An int3 in another instruction's middle would change that one, so who asks knows that one begins there; and not within reach of the engine's patches, whose jumps use the bytes of what follows them. Sites and slots stay until all is cleared: a thread may have met one
 * that is gone by now, or be in its slot. The processor that executes what another one has changed has either byte; who meets an int3 that is gone goes back to it. */
#include "guardbreak.h"
#include "checkpoint.h"
#include "decode.h"
#include "displace.h"
#include "pass.h"
#include "patch.h"
#include <errno.h>
#include <sys/mman.h>
#include <sys/uio.h>

enum { INT3 = 0xcc, SITES = 128, SLOT = 32, AREAS = 8, JUMP = 6 };
_Static_assert(SITES * SLOT == RS_PAGE && RS_DISPLACED + JUMP + 8 <= SLOT, "each area has room for all; a copy, a jump by memory and the address");
#define REACH (3ull << 29)

struct rs_guard_break {
	uint64_t at, slot;
	uint32_t there;            /* numbers, a bit each */
	uint8_t code[RS_DISPLACED];
	bool branch;               /* it says where control goes on */
	struct rs_instruction in;
};
static struct breaks {
	uint32_t sites, areas;
	uint64_t area[AREAS];
	struct rs_guard_break site[SITES];
} *breaks;

static size_t read_some(uint64_t at, void *to, size_t n)
{
	struct iovec local = {to, n}, remote = {(void *)at, n};
	long r = RS_SYS6(SYS_process_vm_readv, rs_os_tid(), &local, 1, &remote, 1, 0);
	return r < 0 ? 0 : (size_t)r;
}

/* --- the coordinator ---------------------------------------------------------------------------------------------------------------- */

long rs_guard_breaks_begin(void)
{
	breaks = rs_guard_map(RS_ARENA_OWN, sizeof *breaks);
	return breaks ? 0 : -ENOMEM;
}

/* Branches that go() knows. The segment's, and those of other sizes, nobody uses. */
static bool branches(const struct rs_instruction *in)
{
	uint8_t op = in->op, more = in->reg & 7;
	if (in->small || in->odd == 0x64 || in->odd == 0x65)
		return false;
	if (in->map == 1)
		return (op & 0xf0) == 0x80;
	if (in->map != 0)
		return false;
	return (op & 0xf0) == 0x70 || op == 0xe8 || op == 0xe9 || op == 0xeb || op == 0xc3 || (op == 0xff && (more == 2 || more == 4) && in->odd != 0x67);
}

/* What a direct call, or an operand, is away from the end of the instruction. */
static int32_t distance(const struct rs_guard_break *b)
{
	int32_t d;
	rs_os_copy(&d, b->code + b->in.length - 4, sizeof d);
	return d;
}

static uint64_t area_for(uint64_t at)
{
	for (uint32_t i = 0; i < breaks->areas; i++)
		if ((breaks->area[i] > at ? breaks->area[i] - at : at - breaks->area[i]) < REACH)
			return breaks->area[i];
	uint64_t p = breaks->areas < AREAS ? rs_pass_reserve(at, RS_PAGE) : 0;
	if (p && RS_SYS3(SYS_mprotect, p, RS_PAGE, PROT_READ | PROT_EXEC) < 0) {
		RS_SYS2(SYS_munmap, p, RS_PAGE);
		p = 0;
	}
	if (p)
		breaks->area[breaks->areas++] = p;
	return p;
}

/* A branch is copied, too: where it faults it is to fault. */
static long fill(struct rs_guard_break *b, size_t room)
{
	static const uint8_t jmp[JUMP] = {0xff, 0x25}; /* to what lies behind it */
	uint8_t code[SLOT] = {0};
	int n = rs_displace(code, b->slot, b->code, (unsigned)room, b->at);
	bool known = rs_decode(&b->in, b->code, room);
	b->branch = n <= 0;
	if (n <= 0) {
		if (!known || !branches(&b->in))
			return -EINVAL;
		n = b->in.length;
		rs_os_copy(code, b->code, (size_t)n);
		if (b->in.op == 0xe8 || (b->in.modrm && b->in.base == 17)) {
			int32_t d = (int32_t)((int64_t)b->at + distance(b) - (int64_t)b->slot);
			rs_os_copy(code + n - 4, &d, sizeof d);
		}
	}
	b->in.length = (uint8_t)n;
	uint64_t next = b->at + (uint64_t)n;
	rs_os_copy(code + n, jmp, sizeof jmp);
	rs_os_copy(code + n + JUMP, &next, sizeof next);
	return rs_checkpoint_write(b->slot, code, sizeof code);
}

static long make(uint64_t at, uint32_t *site)
{
	if (breaks->sites == SITES)
		return -ENOSPC;
	int prot = rs_checkpoint_protection(at);
	if (prot < 0 || !(prot & PROT_EXEC) || rs_patch_pc(at) != at || rs_patch_near(at))
		return -EINVAL;
	struct rs_guard_break *b = &breaks->site[breaks->sites];
	rs_os_clear(b, sizeof *b);
	size_t page = RS_PAGE - at % RS_PAGE, n = read_some(at, b->code, page < sizeof b->code ? page : sizeof b->code);
	if (n == page && n < sizeof b->code)
		n += read_some(at + n, b->code + n, sizeof b->code - n);
	if (n == 0 || b->code[0] == INT3)
		return -EINVAL;
	rs_guard_break_hide(at, b->code, n); /* another one may be right behind it */
	b->at = at;
	uint64_t area = area_for(at);
	if (!area)
		return -ENOMEM;
	b->slot = area + breaks->sites * SLOT;
	long r = fill(b, n);
	if (r < 0)
		return r;
	*site = breaks->sites;
	__atomic_store_n(&breaks->sites, breaks->sites + 1, __ATOMIC_RELEASE);
	return 0;
}

long rs_guard_break_set(unsigned k, uint64_t at)
{
	uint32_t i = 0;
	while (i < breaks->sites && breaks->site[i].at != at)
		i++;
	long r = i < breaks->sites ? 0 : make(at, &i);
	if (r < 0)
		return r;
	static const uint8_t int3 = INT3;
	struct rs_guard_break *b = &breaks->site[i];
	if (__atomic_fetch_or(&b->there, 1u << k, __ATOMIC_ACQ_REL) == 0 && (r = rs_checkpoint_write(at, &int3, 1)) < 0) {
		__atomic_store_n(&b->there, 0, __ATOMIC_RELEASE);
		return r;
	}
	return 0;
}

void rs_guard_break_clear(unsigned k)
{
	for (uint32_t i = 0; i < breaks->sites; i++) {
		struct rs_guard_break *b = &breaks->site[i];
		if (b->there == 1u << k)
			rs_checkpoint_write(b->at, b->code, 1);
		__atomic_fetch_and(&b->there, ~(1u << k), __ATOMIC_ACQ_REL);
	}
}

void rs_guard_breaks_clear(void)
{
	for (unsigned k = 0; k < RS_GUARD_BREAKS; k++)
		rs_guard_break_clear(k);
	for (uint32_t i = 0; i < breaks->areas; i++)
		RS_SYS2(SYS_munmap, breaks->area[i], RS_PAGE);
	breaks->areas = breaks->sites = 0;
}

/* --- threads --------------------------------------------------------------------------------------------------------------------------- */

const struct rs_guard_break *rs_guard_break_hit(greg_t *g)
{
	uint32_t n = breaks ? __atomic_load_n(&breaks->sites, __ATOMIC_ACQUIRE) : 0;
	uint64_t at = (uint64_t)g[REG_RIP] - 1;
	for (uint32_t i = 0; i < n; i++)
		if (breaks->site[i].at == at) {
			g[REG_RIP] = (greg_t)at;
			return &breaks->site[i];
		}
	return NULL;
}

bool rs_guard_break_is(unsigned k, uint64_t at)
{
	uint32_t n = __atomic_load_n(&breaks->sites, __ATOMIC_ACQUIRE), i = 0;
	while (i < n && breaks->site[i].at != at)
		i++;
	return i < n && rs_guard_break_there(&breaks->site[i]) & 1u << k;
}

uint32_t rs_guard_break_there(const struct rs_guard_break *b) { return __atomic_load_n(&b->there, __ATOMIC_ACQUIRE); }

static uint64_t register_of(const greg_t *g, unsigned r)
{
	static const uint8_t where[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI, REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
	return (uint64_t)g[where[r & 15]];
}

static bool read_word(uint64_t at, uint64_t *word) { return read_some(at, word, sizeof *word) == sizeof *word; }

/* Where an indirect branch goes. */
static bool operand(const struct rs_guard_break *b, const greg_t *g, uint64_t *to)
{
	const struct rs_instruction *in = &b->in;
	if (in->mod == 3) {
		*to = register_of(g, in->rm);
		return true;
	}
	uint64_t at = (uint64_t)(int64_t)in->disp;
	if (in->base == 17)
		at += b->at + in->length;
	else if (in->base < 16)
		at += register_of(g, in->base);
	if (in->index < 16)
		at += register_of(g, in->index) << in->scale;
	return read_word(at, to);
}

/* Brings the thread to where the branch leads; false: it may fault, then it does so in its slot. */
static bool go(const struct rs_guard_break *b, greg_t *g)
{
	uint64_t to, sp = (uint64_t)g[REG_RSP], word;
	uintptr_t there;
	if (rs_pass_jump(b->code, b->at, (uint64_t)g[REG_EFL], &there)) {
		g[REG_RIP] = (greg_t)there;
		return true;
	}
	bool returns = b->in.op == 0xc3, calls = b->in.op == 0xe8 || (b->in.op == 0xff && (b->in.reg & 7) == 2);
	if (b->in.op == 0xe8)
		to = b->at + b->in.length + (uint64_t)(int64_t)distance(b);
	else if (!(returns ? read_word(sp, &to) : operand(b, g, &to)))
		return false;
	if ((int64_t)(to << 16) >> 16 != (int64_t)to || (calls && !read_word(sp - 8, &word)))
		return false;
	if (calls)
		*(uint64_t *)(sp - 8) = b->at + b->in.length;
	g[REG_RSP] = (greg_t)(calls ? sp - 8 : returns ? sp + 8 : sp);
	g[REG_RIP] = (greg_t)to;
	return true;
}

bool rs_guard_break_past(const struct rs_guard_break *b, greg_t *g)
{
	if (b->branch && go(b, g))
		return true;
	g[REG_RIP] = (greg_t)b->slot;
	return false;
}

uint64_t rs_guard_break_show(greg_t *g)
{
	uint32_t n = breaks ? __atomic_load_n(&breaks->sites, __ATOMIC_ACQUIRE) : 0;
	uint64_t pc = (uint64_t)g[REG_RIP];
	for (uint32_t i = 0; i < n; i++) {
		const struct rs_guard_break *b = &breaks->site[i];
		if (pc - b->slot >= SLOT)
			continue;
		bool over = pc != b->slot;
		g[REG_RIP] = (greg_t)(over ? b->at + b->in.length : b->at);
		return over ? 0 : pc;
	}
	return 0;
}

void rs_guard_break_hide(uint64_t at, void *bytes, size_t n)
{
	uint32_t sites = breaks ? __atomic_load_n(&breaks->sites, __ATOMIC_ACQUIRE) : 0;
	for (uint32_t i = 0; i < sites; i++)
		if (breaks->site[i].at - at < n)
			((uint8_t *)bytes)[breaks->site[i].at - at] = breaks->site[i].code[0];
}
