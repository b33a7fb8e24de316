/* sharesite.c: what is shared before a second thread touches it (share.h): blocks of allocations whose blocks were found shared before, and what a new thread's argument leads to. So the accesses that would be
 * their owner's alone, and told to nobody, are told.
 *
 * Ground rules: as share.c. */
#include "share.h"
#include "alloc.h"
#include "heap.h"

/* Allocations by their stacks, a number each of which is the same in all threads: what finds no place is not remembered. A number once in place stays. */
enum { SITES = 1 << 12, PROBES = 8 };
static uint32_t sites[SITES], known;

static bool look(uint32_t stack, bool add)
{
	unsigned at = stack * 0x9e3779b1u >> 20;
	for (unsigned i = 0; i < PROBES; i++) {
		uint32_t *s = &sites[(at + i) % SITES], is = __atomic_load_n(s, __ATOMIC_RELAXED);
		if (is == stack || !is) {
			if (!is && add)
				__atomic_store_n(s, stack, __ATOMIC_RELAXED);
			return is == stack;
		}
	}
	return false;
}
_Static_assert(SITES == 1 << (32 - 20), "the product's upper bits choose a place");

void rs_share_found(uintptr_t p)
{
	uintptr_t block;
	size_t n;
	uint32_t stack = rs_alloc_block_of(p, &block, &n) ? rs_heap_stack_of(block) : 0;
	if (!stack || look(stack, true))
		return;
	__atomic_store_n(&known, 1, __ATOMIC_RELAXED);
}

bool rs_share_common(uintptr_t pc, void *fp)
{
	if (!__atomic_load_n(&known, __ATOMIC_RELAXED) || !rs_share_on)
		return false;
	struct rs_thread *t = rs_self();
	uint32_t stack = t ? rs_stack_from(t, pc, fp, rs_config.alloc_depth) : 0;
	return stack && look(stack, false);
}

/* --- what a thread begins with ------------------------------------------------------------------------------------------------------------ */

/* PARCEL: a block of so many bytes and less only carries what the thread is to work upon (std::thread's state, std::async's, a closure): what it points to is the thread's as well. MOST: of a longer one, the
 * first. DEEP: std::thread's state leads to std::function's closure, that to the work. POINTERS: so many are followed in all. */
enum { PARCEL = 128, MOST = 1 << 20, DEEP = 2, POINTERS = 64 };

/* The block that p lies in is shared, unless the thread runs on it. Of one of the heap its bytes, and where it begins; else 0. Locked. */
static size_t share_block(uintptr_t p, uintptr_t *block)
{
	uintptr_t sp = (uintptr_t)__builtin_frame_address(0);
	size_t n = 0;
	if (rs_share_is_heap(p)) {
		if (!rs_alloc_block_of(p, block, &n) || sp - *block < n)
			return 0;
		rs_share_heap_shared(*block, *block + (n < MOST ? n : MOST));
		return n;
	}
	struct share_block *b = rs_share_block(p);
	if (!b || (b->state != SHARE_PRIVATE && b->state != SHARE_STRIPPED && b->state != SHARE_UNOWNED && b->state != SHARE_RESTING) || sp - rs_share_address(b) < rs_share_bytes(b))
		return 0;
	rs_share_shared(b);
	return 0;
}

static void share_from(uintptr_t p, unsigned deep, unsigned *left)
{
	uintptr_t block;
	size_t n = share_block(p, &block);
	for (size_t i = 0; deep && *left && n <= PARCEL && i + sizeof p <= n; i += sizeof p) {
		uintptr_t to = __atomic_load_n((const uintptr_t *)(block + rs_share.away + i), __ATOMIC_RELAXED);
		if (to - block >= n && (rs_share_has(to) || rs_share_bits(to))) {
			--*left;
			share_from(to, deep - 1, left);
		}
	}
}

void rs_share_argument(const void *arg)
{
	unsigned left = POINTERS;
	uintptr_t p = (uintptr_t)arg;
	if (!rs_share_on || (!rs_share_has(p) && !rs_share_bits(p)))
		return;
	uint64_t mask = rs_os_no_signals();
	rs_lock(&rs_share_lock);
	share_from(p, DEEP, &left);
	rs_unlock(&rs_share_lock);
	rs_os_signals(mask);
}
