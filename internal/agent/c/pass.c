/* pass.c: instructions executed elsewhere (pass.h).
 *
 * A copy lies in a slot of its thread's, with a jump back behind it. Nobody ever comes back to a slot: a thread that a signal interrupts there is, once its handler returns, before the program's instruction or behind it
 * (rs_patch_show). So a slot is free whenever its thread asks for one; each has two by turns, for a handler of SIGTRAP between here and the copy. Slots are written by another mapping of their
 * memory, so that none is ever writable and executable. A forked child does not have them. */
#include "pass.h"
#include "displace.h"
#include "patch.h"
#include <errno.h>
#include <sys/mman.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

enum { SLOT = 32, TURNS = 2, AREA = 4 * RS_PAGE, OWNERS = AREA / SLOT / TURNS, AREAS = 16, JUMP = 6 };
_Static_assert(RS_DISPLACED + JUMP + 8 <= SLOT, "a copy, a jump by memory and the address");

struct slot { uintptr_t site; uint32_t length; };
struct area {
	uintptr_t code;
	uint8_t *bytes;            /* the same memory */
	uint32_t owner[OWNERS];    /* tid; 0: nobody */
	uint8_t turn[OWNERS];
	struct slot slot[OWNERS * TURNS];
};
static struct area *areas[AREAS];
static uint32_t area_count, area_pid;
static struct rs_lock lock;

/* --- areas -------------------------------------------------------------------------------------------------------------------- */

/* So far from its slot an instruction may be that it reaches what lies around it. */
#define REACH (3ul << 29)
/* Where an area may lie: from the site downwards, away from what a heap or a stack may yet want; else far above. */
enum { STEP = 64 << 20, BELOW = 22, ABOVE_FROM = 18, ABOVE = 23 };

static bool within(const struct area *a, uintptr_t site) { return (a->code > site ? a->code - site : site - a->code) < REACH; }

static uintptr_t reserve(uintptr_t at, size_t bytes)
{
	long p = RS_SYS6(SYS_mmap, at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
	if (p > 0 && (uintptr_t)p != at) {
		RS_SYS2(SYS_munmap, p, bytes);
		return 0;
	}
	return p < 0 ? 0 : at;
}

/* mremap(2): an old size of 0 makes another mapping of shared memory. */
static bool show_code(struct area *a, uintptr_t at)
{
	if (RS_SYS5(SYS_mremap, a->bytes, 0, AREA, MREMAP_MAYMOVE | MREMAP_FIXED, at) < 0 || RS_SYS3(SYS_mprotect, at, AREA, PROT_READ | PROT_EXEC) < 0) {
		RS_SYS2(SYS_munmap, at, AREA);
		return false;
	}
	RS_SYS3(SYS_madvise, at, AREA, MADV_DONTFORK);
	RS_SYS3(SYS_madvise, a->bytes, AREA, MADV_DONTFORK);
	RS_SYS3(SYS_madvise, at, AREA, MADV_DONTDUMP);
	RS_SYS3(SYS_madvise, a->bytes, AREA, MADV_DONTDUMP);
	a->code = at;
	return true;
}

uintptr_t rs_pass_reserve(uintptr_t site, size_t bytes)
{
	uintptr_t page = site & -RS_PAGE, at;
	for (uintptr_t i = 1; i <= BELOW && page > (i + 1) * STEP; i++)
		if ((at = reserve(page - i * STEP, bytes)))
			return at;
	for (uintptr_t i = ABOVE_FROM; i <= ABOVE; i++)
		if ((at = reserve(page + i * STEP, bytes)))
			return at;
	return 0;
}

/* Locked. */
static struct area *make(uintptr_t site)
{
	struct area *a = area_count < AREAS ? rs_os_map(sizeof *a) : NULL;
	uintptr_t at = a ? rs_pass_reserve(site, AREA) : 0;
	long p = at ? RS_SYS6(SYS_mmap, 0, AREA, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) : -ENOMEM;
	if (p > 0) {
		a->bytes = (uint8_t *)p;
		if (show_code(a, at)) {
			areas[area_count] = a;
			__atomic_store_n(&area_count, area_count + 1, __ATOMIC_RELEASE);
			return a;
		}
		RS_SYS2(SYS_munmap, p, AREA);
	} else if (at) {
		RS_SYS2(SYS_munmap, at, AREA);
	}
	if (a)
		rs_os_unmap(a, sizeof *a);
	return NULL;
}

static struct area *find(uintptr_t site)
{
	uint32_t n = __atomic_load_n(&area_count, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < n; i++)
		if (within(areas[i], site))
			return areas[i];
	return NULL;
}

static struct area *area_for(uintptr_t site)
{
	/* A child of a clone that was not seen has the parent's table, without the memory. */
	uint32_t pid = rs_os_pid();
	struct area *a = area_pid == pid ? find(site) : NULL;
	if (a || (area_pid && area_pid != pid))
		return a;
	rs_lock(&lock);
	area_pid = pid;
	if (!(a = find(site)))
		a = make(site);
	rs_unlock(&lock);
	return a;
}

/* Whoever ended has left its place. -1: there is none. */
static int owned(struct area *a, uint32_t tid)
{
	for (int i = 0; i < OWNERS; i++)
		if (__atomic_load_n(&a->owner[i], __ATOMIC_RELAXED) == tid)
			return i;
	for (int i = 0; i < OWNERS; i++) {
		uint32_t was = __atomic_load_n(&a->owner[i], __ATOMIC_RELAXED);
		if ((was == 0 || RS_SYS3(SYS_tgkill, area_pid, was, 0) == -ESRCH) && __atomic_compare_exchange_n(&a->owner[i], &was, tid, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			return i;
	}
	return -1;
}

/* --- instructions ------------------------------------------------------------------------------------------------------------------ */

/* Intel SDM vol. 1, appendix B. */
static bool holds(unsigned condition, uint64_t flags)
{
	enum { CF = 1, PF = 4, ZF = 0x40, SF = 0x80, OF = 0x800 };
	bool less = !(flags & SF) != !(flags & OF), r = false;
	switch (condition >> 1) {
	case 0: r = flags & OF; break;
	case 1: r = flags & CF; break;
	case 2: r = flags & ZF; break;
	case 3: r = flags & (CF | ZF); break;
	case 4: r = flags & SF; break;
	case 5: r = flags & PF; break;
	case 6: r = less; break;
	case 7: r = less || flags & ZF; break;
	}
	return r != (condition & 1);
}

unsigned rs_pass_jump(const uint8_t *code, uintptr_t site, uint64_t flags, uintptr_t *to)
{
	unsigned i = 0;
	while (i < 4 && (code[i] == 0x2e || code[i] == 0x3e || code[i] == 0xf2)) /* hints, and MPX's that is none any more */
		i++;
	bool taken = true, near = code[i] == 0xe9;
	if (near || code[i] == 0xeb) {
		i++;
	} else if ((code[i] & 0xf0) == 0x70) {
		taken = holds(code[i++] & 15, flags);
	} else if (code[i] == 0x0f && (code[i + 1] & 0xf0) == 0x80) {
		taken = holds(code[i + 1] & 15, flags);
		near = true;
		i += 2;
	} else {
		return 0;
	}
	int32_t by = (int8_t)code[i];
	if (near)
		rs_os_copy(&by, code + i, sizeof by);
	i += near ? 4 : 1;
	*to = site + i + (taken ? (uintptr_t)(intptr_t)by : 0);
	return i;
}

enum { CROSSES = -1, TF = 1 << 8 };

/* The instruction at the site in a slot. 0: it cannot be. */
static uintptr_t fill(struct area *a, unsigned n, uintptr_t site)
{
	uint8_t *to = a->bytes + n * SLOT;
	uintptr_t at = a->code + n * SLOT;
	unsigned room = (unsigned)(RS_PAGE - (site & (RS_PAGE - 1)));
	int length = rs_displace(to, at, (const uint8_t *)site, room < RS_DISPLACED ? room : RS_DISPLACED, site);
	if (length == CROSSES)
		length = rs_displace(to, at, (const uint8_t *)site, RS_DISPLACED, site);
	if (length <= 0)
		return 0;
	uintptr_t next = site + (unsigned)length;
	static const uint8_t jmp[JUMP] = {0xff, 0x25}; /* to what lies behind it */
	rs_os_copy(to + length, jmp, sizeof jmp);
	rs_os_copy(to + length + JUMP, &next, sizeof next);
	a->slot[n].site = site;
	a->slot[n].length = (uint32_t)length;
	return at;
}

/* Where a jump at the site leads, 0: it is none. The site's page can be read; the next one only if the instruction goes on there. */
static uintptr_t destination(uintptr_t site, uint64_t flags)
{
	unsigned room = (unsigned)(RS_PAGE - (site & (RS_PAGE - 1)));
	uint8_t copy[RS_DISPLACED] = {0};
	uintptr_t to = 0;
	rs_os_copy(copy, (const void *)site, room < sizeof copy ? room : sizeof copy);
	unsigned length = rs_pass_jump(copy, site, flags, &to);
	if (length > room) {
		rs_os_copy(copy, (const void *)site, length);
		length = rs_pass_jump(copy, site, flags, &to);
	}
	return length ? to : 0;
}

enum rs_pass rs_pass(ucontext_t *uc)
{
	greg_t *g = uc->uc_mcontext.gregs;
	uintptr_t site = (uintptr_t)g[REG_RIP];
	if (rs_sandboxed || rs_in_vfork() || rs_signals_bare)
		return RS_PASS_NOT;
	uint64_t mask = rs_os_no_signals();
	enum rs_pass r = RS_PASS_NOT;
	struct area *a = area_for(site);
	int own = a ? owned(a, rs_os_tid()) : -1;
	uint32_t changes = __atomic_load_n(&rs_patch_changes, __ATOMIC_SEQ_CST);
	if (own >= 0) {
		a->turn[own] = (uint8_t)((a->turn[own] + 1) % TURNS);
		uintptr_t at = fill(a, (unsigned)own * TURNS + a->turn[own], site);
		if (!at && !(g[REG_EFL] & TF)) /* who steps itself would miss a step */
			at = destination(site, (uint64_t)g[REG_EFL]);
		/* What was read may be half of one instruction and half of another. */
		if (changes & 1 || __atomic_load_n(&rs_patch_changes, __ATOMIC_SEQ_CST) != changes) {
			r = RS_PASS_AGAIN;
			RS_SYS0(SYS_sched_yield);
		} else if (at) {
			g[REG_RIP] = (greg_t)at;
			r = RS_PASS_DONE;
		}
		rs_serialize(); /* what this processor has fetched of an older copy */
	}
	rs_os_signals(mask);
	return r;
}

uintptr_t rs_pass_place(uintptr_t pc)
{
	uint32_t n = __atomic_load_n(&area_count, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < n; i++) {
		uintptr_t off = pc - areas[i]->code;
		if (off >= AREA)
			continue;
		const struct slot *s = &areas[i]->slot[off / SLOT];
		return off % SLOT < s->length ? s->site : s->site + s->length; /* a repeated one goes on where it was */
	}
	return 0;
}

void rs_pass_after_fork(void)
{
	area_count = 0; /* their memory is the parent's; what describes it is lost */
	area_pid = 0;
	lock.word = 0;
}
