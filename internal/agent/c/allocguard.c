/* allocguard.c: bytes behind each block that nobody writes, and freed blocks that are kept back for a while.
 *
 * Ground rules that bite here: the OS only through os.h, nothing allocates. Here, and only here, the allocator writes to the program's pages: not for memory that a
 * protection key may close.
 *
 * A block of n bytes lies in one of a usual size, and all that it does not need, at least Config.Allocator's guard bytes, is guard: a pattern (the first PATTERN bytes of it), and in the last
 * eight how much it is, so that n is known again. The first FREED bytes of a block in quarantine are a pattern, too. */
#include "alloc_core.h"

enum { PATTERN = 256, FREED = 128, QUARANTINED = 1 << 14 };

struct rs_quarantine {
	size_t bytes;
	uint32_t first, count;
	uintptr_t block[QUARANTINED];
};

static size_t quarantine_bytes;
void (*rs_alloc_found)(uintptr_t block, size_t n, uintptr_t wrong, bool freed);

static uint64_t word_of(uintptr_t p, uint32_t slack)
{
	uint64_t key = (p >> 4) * 0x9e3779b97f4a7c15ull;
	return ((uint64_t)slack | (uint64_t)~slack << 32) ^ key;
}

static uint8_t guard_byte(uintptr_t at) { return (uint8_t)(0xa5 ^ at * 0x1d); }
static uint8_t freed_byte(uintptr_t at) { return (uint8_t)(0xdb ^ at * 0x1d); }

static size_t whole(uintptr_t p)
{
	unsigned kind = V.unit[unit_index(p)] & 0xff;
	return kind == RS_ALLOC_HUGE ? chunk_at(chunk_index(p))->run_bytes : kind && kind <= RS_ALLOC_CLASSES ? T.size[kind - 1] : 0;
}

static uint64_t *last_word(uintptr_t p, size_t size) { return (uint64_t *)(p + size - 8); }

/* The length asked for; false: what says so was overwritten. */
static bool length(uintptr_t p, size_t size, size_t *n)
{
	uint64_t w = *last_word(p, size) ^ word_of(p, 0);
	uint32_t slack = (uint32_t)w;
	if ((uint32_t)(w >> 32) != slack || slack > size || slack < V.guard)
		return false;
	*n = size - slack;
	return true;
}

uintptr_t rs_alloc_check_block(uintptr_t p, size_t *n)
{
	size_t size = whole(p);
	*n = 0;
	if (!size || !length(p, size, n))
		return size ? (uintptr_t)last_word(p, size) : p;
	uintptr_t end = p + size - 8;
	for (uintptr_t at = p + *n; at < end && at - (p + *n) < PATTERN; at++)
		if (*(const uint8_t *)at != guard_byte(at))
			return at;
	return 0;
}

static uintptr_t check_freed(uintptr_t p, size_t n)
{
	for (uintptr_t at = p; at < p + n && at < p + FREED; at++)
		if (*(const uint8_t *)at != freed_byte(at))
			return at;
	return 0;
}

void *rs_alloc_guard_alloc(struct rs_alloc_heap *h, size_t n, size_t align, bool zero)
{
	if (n > (size_t)PTRDIFF_MAX - V.guard)
		return NULL;
	uintptr_t p = (uintptr_t)rs_plain_alloc(h, n + V.guard, align, zero);
	if (!p || !V.guard)
		return (void *)p;
	size_t size = whole(p), slack = size - n;
	if (slack > UINT32_MAX) /* cannot be: a page at most, or an eighth */
		slack = UINT32_MAX;
	for (uintptr_t at = p + n; at < p + size - 8 && at - (p + n) < PATTERN; at++)
		*(uint8_t *)at = guard_byte(at);
	*last_word(p, size) = word_of(p, (uint32_t)slack);
	return (void *)p;
}

size_t rs_alloc_guard_usable(uintptr_t p)
{
	size_t size = whole(p), n;
	return !V.guard ? size : length(p, size, &n) ? n : size - V.guard;
}

static void leave_quarantine(struct rs_alloc_heap *h, struct rs_quarantine *q)
{
	uintptr_t p = q->block[q->first];
	size_t size = whole(p), n = 0, most = 0;
	uintptr_t wrong = V.guard ? rs_alloc_check_block(p, &n) : 0;
	most = V.guard ? n : size;
	uintptr_t early = check_freed(p, most);
	if ((early || wrong) && rs_alloc_found)
		rs_alloc_found(p, n, early ? early : wrong, true);
	q->first = (q->first + 1) % QUARANTINED;
	q->count--;
	q->bytes -= size;
	rs_plain_free(h, (void *)p);
}

void rs_alloc_guard_free(struct rs_alloc_heap *h, void *block)
{
	uintptr_t p = (uintptr_t)block;
	size_t size = whole(p), n = 0;
	uintptr_t wrong = V.guard && size ? rs_alloc_check_block(p, &n) : 0;
	if (wrong && rs_alloc_found)
		rs_alloc_found(p, n, wrong, false);
	if (h && quarantine_bytes && !h->quarantine)
		h->quarantine = rs_os_map(sizeof *h->quarantine);
	struct rs_quarantine *q = h ? h->quarantine : NULL;
	if (!q || size == 0 || size > quarantine_bytes) {
		rs_plain_free(h, block);
		return;
	}
	for (uintptr_t at = p, end = p + (V.guard ? n : size); at < end && at < p + FREED; at++)
		*(uint8_t *)at = freed_byte(at);
	while (q->count == QUARANTINED || (q->count && q->bytes + size > quarantine_bytes))
		leave_quarantine(h, q);
	q->block[(q->first + q->count++) % QUARANTINED] = p;
	q->bytes += size;
}

/* --- all blocks ------------------------------------------------------------------------------------------------------------------- */

/* Blocks on stacks and in quarantine count, for the moment, as freed by others. */
static void mark(uintptr_t p, bool on)
{
	unsigned granule = (unsigned)((p & (RS_CHUNK - 1)) >> 4);
	if ((V.unit[unit_index(p)] & 0xff) == RS_ALLOC_HUGE)
		return;
	uint64_t *w = &chunk_at(chunk_index(p))->remote[granule / 64], bit = 1ull << granule % 64;
	*w = on ? *w | bit : *w & ~bit;
}

static void mark_all(bool on)
{
	for (uint32_t id = 1; id < T.heaps; id++) {
		const struct rs_alloc_heap *h = T.heap[id];
		for (unsigned class = 0; class < RS_ALLOC_CLASSES; class++)
			for (const uintptr_t *at = h->bin[class].bottom; at < h->bin[class].top; at++)
				mark(*at, on);
		const struct rs_quarantine *q = h->quarantine;
		for (uint32_t i = 0; q && i < q->count; i++)
			mark(q->block[(q->first + i) % QUARANTINED], on);
	}
}

static bool quarantined(uintptr_t p)
{
	for (uint32_t id = 1; id < T.heaps; id++) {
		const struct rs_quarantine *q = T.heap[id]->quarantine;
		for (uint32_t i = 0; q && i < q->count; i++)
			if (q->block[(q->first + i) % QUARANTINED] == p)
				return true;
	}
	return false;
}

typedef void (*found_fn)(void *arg, uintptr_t block, size_t n, uintptr_t wrong, bool freed);

static size_t check_one(uintptr_t p, found_fn found, void *arg)
{
	size_t n;
	uintptr_t wrong = rs_alloc_check_block(p, &n);
	if (wrong)
		found(arg, p, n, wrong, false);
	return wrong != 0;
}

static size_t check_span(uint32_t unit, unsigned class, found_fn found, void *arg)
{
	const struct span *s = span_at(unit);
	uintptr_t p = unit_address(unit);
	size_t count = 0;
	for (unsigned i = 0; i + s->fresh < s->total; i++, p += T.size[class])
		if (rs_slab_out(p))
			count += check_one(p, found, arg);
	return count;
}

size_t rs_alloc_check(found_fn found, void *arg)
{
	size_t count = 0;
	mark_all(true);
	for (uint32_t u = 0, end = (uint32_t)(V.limit >> RS_UNIT_BITS); V.guard && u < end; u++) {
		unsigned word = V.unit[u], kind = word & 0xff;
		if (kind == 0 || word >> 8 || !V.owner[u / UNITS])
			continue;
		if (kind != RS_ALLOC_HUGE)
			count += check_span(u, kind - 1, found, arg);
		else if (!quarantined(unit_address(u)))
			count += check_one(unit_address(u), found, arg);
	}
	mark_all(false);
	for (uint32_t id = 1; id < T.heaps; id++) {
		const struct rs_quarantine *q = T.heap[id]->quarantine;
		for (uint32_t i = 0; q && i < q->count; i++) {
			uintptr_t p = q->block[(q->first + i) % QUARANTINED], late = 0;
			size_t n = 0;
			if (V.guard)
				late = rs_alloc_check_block(p, &n);
			uintptr_t early = check_freed(p, V.guard ? n : whole(p));
			if (early || late) {
				found(arg, p, n, early ? early : late, true);
				count++;
			}
		}
	}
	return count;
}

void rs_alloc_guard_begin(uint32_t word)
{
	V.guard = (word >> 8 & 0xff) * 8;
	quarantine_bytes = (size_t)(word >> 16) << 16;
	V.extra = V.guard || quarantine_bytes;
}
