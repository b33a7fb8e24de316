/* allochuge.c: the range's chunks: which are free, where their memory comes from; blocks that are runs of chunks.
 *
 * Ground rules that bite here: the OS only through os.h; no memory but the tables of alloc_core.h; all under the allocator's lock, and nothing here waits for anything else. The
 * program's pages are not touched.
 *
 * The lowest place that fits is taken, so addresses follow from the order of the calls alone. What is given back keeps its pages up to RETAINED, since faults cost more
 * than all else here; a run of LARGE is given to the kernel at once, as glibc's munmap does with blocks of its largest threshold. */
#include "alloc_core.h"
#include <errno.h>
#include <sys/mman.h>
#include <sys/resource.h>

enum { RETAINED = 16, LARGE = 32, META_PIECE = 64, NOTES_PIECE = 8 }; /* chunks */
enum { NOTES = RS_CHUNK / 32 * sizeof(uint32_t) }; /* bytes, of a chunk */

/* Bits by chunk, below `used`. Dirty: may not be zero. */
static uint64_t unused[CHUNKS_MOST / 64], committed[CHUNKS_MOST / 64], dirty[CHUNKS_MOST / 64];
static uint32_t used, lowest;  /* chunks below `used` were handed out once; below `lowest` none is free */
static uint32_t dirty_free;    /* free chunks that are dirty */
static uint32_t had, noted;    /* chunks that have tables, and notes */

static bool bit(const uint64_t *map, uint32_t i) { return map[i / 64] >> i % 64 & 1; }
static void set(uint64_t *map, uint32_t i, bool on)
{
	if (on)
		map[i / 64] |= 1ull << i % 64;
	else
		map[i / 64] &= ~(1ull << i % 64);
}

/* --- the usual source ------------------------------------------------------------------------------------------------------ */

static long map_at(uintptr_t at, size_t bytes, int prot)
{
	long r = RS_SYS6(SYS_mmap, at, bytes, prot, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	return r < 0 && r > -4096 ? r : 0;
}

/* mmap over what is reserved: a program's filter of system calls that knows mmap need not know mprotect, and the kernel counts the bytes as it does glibc's. */
static long anonymous_commit(uintptr_t at, size_t bytes, uint32_t owner)
{
	(void)owner;
	return map_at(at, bytes, PROT_READ | PROT_WRITE);
}
static void anonymous_decommit(uintptr_t at, size_t bytes) { map_at(at, bytes, PROT_NONE); }
static long anonymous_purge(uintptr_t at, size_t bytes) { return RS_SYS3(SYS_madvise, at, bytes, MADV_DONTNEED); }
static long anonymous_hand(uintptr_t at, size_t bytes, uint32_t from, uint32_t to)
{
	(void)at, (void)bytes, (void)from, (void)to;
	return 0;
}
/* DONTUNMAP: otherwise there were for a moment a hole in the range, for anybody's mmap. */
static long anonymous_move(uintptr_t from, uintptr_t to, size_t bytes)
{
	enum { MAYMOVE = 1, FIXED = 2, DONTUNMAP = 4 };
	long r = RS_SYS5(SYS_mremap, from, bytes, bytes, MAYMOVE | FIXED | DONTUNMAP, to);
	return r < 0 && r > -4096 ? r : 0;
}

struct rs_alloc_source rs_alloc_source = {.commit = anonymous_commit, .decommit = anonymous_decommit, .purge = anonymous_purge, .hand = anonymous_hand, .move = anonymous_move};

/* --- runs --------------------------------------------------------------------------------------------------------------------- */

/* Tables for chunks below n. They are had in pieces: what mlockall would touch is no more than is used. */
static bool have(uint32_t n, uint32_t *there, uint32_t piece, uintptr_t tables, size_t size)
{
	if (n <= *there)
		return true;
	if (rs_sandboxed)
		return false;
	uint32_t to = (n + piece - 1) / piece * piece;
	if (to > T.chunks)
		to = T.chunks;
	size_t bytes = size * (to - *there);
	uintptr_t at = tables + size * *there;
	if (map_at(at, bytes, PROT_READ | PROT_WRITE) < 0)
		return false;
	RS_SYS3(SYS_madvise, at, bytes, MADV_DONTDUMP);
	uint64_t sum = __atomic_add_fetch(&rs_agent_bytes, bytes, __ATOMIC_RELAXED);
	__atomic_store_n(&rs_counters->agent_bytes, sum, __ATOMIC_RELAXED);
	*there = to;
	return true;
}

static bool have_tables(uint32_t n)
{
	return have(n, &had, META_PIECE, (uintptr_t)T.chunk, sizeof(struct chunk)) && (!V.note || have(n, &noted, NOTES_PIECE, (uintptr_t)V.note, NOTES));
}

/* The lowest run of k free chunks; it may reach beyond `used`, and beyond the range. */
static uint32_t find(uint32_t k, uint32_t align)
{
	for (uint32_t i = lowest; i < used; i++) {
		uint64_t word = unused[i / 64] >> i % 64;
		if (!word) {
			i |= 63;
			continue;
		}
		i += (uint32_t)__builtin_ctzll(word);
		uint32_t first = (i + align - 1) / align * align, n = first;
		while (n < used && n - first < k && bit(unused, n))
			n++;
		if (n - first == k || n >= used)
			return first;
		i = n < i ? i : n;
	}
	return (used + align - 1) / align * align;
}

/* Makes [first, first+k), all free, owner's. */
static bool take(uint32_t first, uint32_t k, uint32_t owner, bool *clean)
{
	if (first + k > T.chunks || first + k < first || !have_tables(first + k))
		return false;
	bool zero = true;
	uint32_t i = first, end = first + k;
	while (i < end) {
		bool there = i < used && bit(committed, i);
		uint32_t n = i + 1;
		while (n < end && (n < used && bit(committed, n)) == there)
			n++;
		uintptr_t at = chunk_address(i);
		size_t bytes = (size_t)(n - i) << RS_CHUNK_BITS;
		if (there ? rs_alloc_source.hand(at, bytes, 0, owner) < 0 : rs_sandboxed || rs_alloc_source.commit(at, bytes, owner) < 0)
			break;
		i = n;
	}
	if (i < end) { /* what was had already goes back; what was not stays as it was */
		for (uint32_t n = first; n < i; n++) {
			if (n < used && bit(committed, n))
				rs_alloc_source.hand(chunk_address(n), RS_CHUNK, owner, 0);
			else
				rs_alloc_source.decommit(chunk_address(n), RS_CHUNK);
		}
		return false;
	}
	for (uint32_t n = used; n < first; n++) { /* passed over for the alignment */
		set(unused, n, true);
		set(committed, n, false);
		set(dirty, n, false);
	}
	for (uint32_t n = first; n < end; n++) {
		if (n < used && bit(dirty, n)) {
			zero = false;
			dirty_free--;
		}
		set(unused, n, false);
		set(committed, n, true);
		__atomic_store_n(&V.owner[n], owner, __ATOMIC_RELAXED);
	}
	if (end > used) {
		used = end;
		__atomic_store_n(&V.limit, (uintptr_t)used << RS_CHUNK_BITS, __ATOMIC_RELEASE);
	}
	while (lowest < used && !bit(unused, lowest))
		lowest++;
	*clean = zero;
	return true;
}

uint32_t rs_run_take(uint32_t k, uint32_t align, uint32_t owner, bool *clean)
{
	rs_alloc_lock(&T.lock, 0);
	uint32_t first = find(k, align);
	bool done = take(first, k, owner, clean);
	rs_alloc_unlock(&T.lock);
	return done ? first : UINT32_MAX;
}

static void give(uint32_t first, uint32_t k, uint32_t owner, bool touched)
{
	uintptr_t at = chunk_address(first);
	size_t bytes = (size_t)k << RS_CHUNK_BITS;
	bool keep = true;
	if (touched && k >= LARGE && !rs_sandboxed) {
		rs_alloc_source.decommit(at, bytes);
		keep = touched = false;
	} else {
		if (touched && dirty_free + k > RETAINED)
			touched = purge(at, bytes) != 0;
		if (rs_alloc_source.hand(at, bytes, owner, 0) < 0) {
			rs_alloc_source.decommit(at, bytes);
			keep = touched = false;
		}
	}
	for (uint32_t i = first; i < first + k; i++) {
		__atomic_store_n(&V.owner[i], 0, __ATOMIC_RELAXED);
		set(unused, i, true);
		set(committed, i, keep);
		set(dirty, i, touched);
	}
	dirty_free += touched ? k : 0;
	if (first < lowest)
		lowest = first;
}

void rs_run_give(uint32_t first, uint32_t k, uint32_t owner, bool touched)
{
	rs_alloc_lock(&T.lock, 0);
	give(first, k, owner, touched);
	rs_alloc_unlock(&T.lock);
}

bool rs_runs_purge(void)
{
	bool any = false;
	rs_alloc_lock(&T.lock, 0);
	for (uint32_t i = lowest; dirty_free && i < used; i++)
		if (bit(unused, i) && bit(dirty, i) && purge(chunk_address(i), RS_CHUNK) == 0) {
			set(dirty, i, false);
			dirty_free--;
			any = true;
		}
	rs_alloc_unlock(&T.lock);
	return any;
}

/* --- huge blocks ---------------------------------------------------------------------------------------------------------------- */

static uint32_t chunks_of(size_t n) { return (uint32_t)((n + RS_CHUNK - 1) >> RS_CHUNK_BITS); }
static size_t usable(size_t n) { return (n + RS_PAGE - 1) & -RS_PAGE; }

uintptr_t rs_huge_alloc(struct rs_alloc_heap *h, size_t n, size_t align, bool *clean)
{
	if (n == 0 || n > V.reserved || align > V.reserved)
		return 0;
	uint32_t k = chunks_of(n), by = align > RS_CHUNK ? (uint32_t)(align >> RS_CHUNK_BITS) : 1;
	/* The range begins at a multiple of a chunk: an alignment above that is one of the address. */
	uint32_t first;
	if (by > 1 && V.base & (align - 1)) {
		if ((uint64_t)k + by > T.chunks)
			return 0;
		first = rs_run_take(k + by, 1, h->id, clean);
		if (first == UINT32_MAX)
			return 0;
		uint32_t at = (uint32_t)((((chunk_address(first) + align - 1) & -align) - V.base) >> RS_CHUNK_BITS);
		if (at > first)
			rs_run_give(first, at - first, h->id, !*clean);
		rs_run_give(at + k, first + by - at, h->id, !*clean);
		first = at;
	} else {
		first = rs_run_take(k, by, h->id, clean);
	}
	if (first == UINT32_MAX)
		return 0;
	chunk_at(first)->run_bytes = usable(n);
	__atomic_store_n(&V.unit[first * UNITS], RS_ALLOC_HUGE, __ATOMIC_RELEASE);
	return chunk_address(first);
}

void rs_huge_free(uintptr_t p)
{
	uint32_t first = chunk_index(p);
	if (__atomic_exchange_n(&V.unit[first * UNITS], 0, __ATOMIC_ACQ_REL) != RS_ALLOC_HUGE)
		rs_alloc_abort("double free or corruption (out)");
	rs_run_give(first, chunks_of(chunk_at(first)->run_bytes), V.owner[first], true);
}

static bool grow(uint32_t end, uint32_t k, uint32_t owner)
{
	bool clean;
	rs_alloc_lock(&T.lock, 0);
	bool room = end + k <= T.chunks;
	for (uint32_t i = end; room && i < end + k && i < used; i++)
		room = bit(unused, i);
	/* Where more follows, the pages that are dirty are whatever realloc leaves undefined. */
	room = room && take(end, k, owner, &clean);
	rs_alloc_unlock(&T.lock);
	return room;
}

/* Behind a move that failed, to memory of zeros. From Linux 6.17 on mremap(2) takes several mappings, and where it fails at one (EFAULT: that is registered with userfaultfd) those before it have moved: what they had is there already, and zero here. */
static void copy_rest(uintptr_t to, uintptr_t from, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += RS_PAGE) {
		size_t n = bytes - at < RS_PAGE ? bytes - at : RS_PAGE, i = 0; /* whole words */
		while (i < n && *(const uint64_t *)(seen(from) + at + i) == 0)
			i += 8;
		if (i < n)
			rs_os_copy((void *)(seen(to) + at), (const void *)(seen(from) + at), n);
	}
}

uintptr_t rs_huge_resize(struct rs_alloc_heap *h, uintptr_t p, size_t n)
{
	uint32_t first = chunk_index(p), owner = V.owner[first];
	size_t was = chunk_at(first)->run_bytes, is = usable(n);
	if (n <= RS_ALLOC_LARGEST || n > V.reserved)
		return 0;
	uint32_t had_chunks = chunks_of(was), k = chunks_of(is);
	if (k < had_chunks)
		rs_run_give(first + k, had_chunks - k, owner, true);
	if (is < was) {
		uintptr_t end = chunk_address(first + k) < p + was ? chunk_address(first + k) : p + was;
		if (end > p + is && end - (p + is) >= 128 << 10)
			purge(p + is, end - (p + is));
	}
	if (k > had_chunks && !grow(first + had_chunks, k - had_chunks, owner)) {
		bool clean;
		uintptr_t to = rs_huge_alloc(h, n, 0, &clean);
		if (!to)
			return 0;
		bool may = V.owner[chunk_index(to)] == owner && !rs_sandboxed, all = may;
		for (size_t moved = 0; moved < was; moved += RS_CHUNK) {
			size_t some = was - moved < RS_CHUNK ? was - moved : RS_CHUNK;
			if (!may || (!clean && purge(to + moved, RS_CHUNK) != 0))
				rs_os_copy((void *)(seen(to) + moved), (void *)(seen(p) + moved), some), all = false;
			else if (rs_alloc_source.move(p + moved, to + moved, RS_CHUNK) != 0)
				copy_rest(to + moved, p + moved, some), all = false;
		}
		__atomic_store_n(&V.unit[first * UNITS], 0, __ATOMIC_RELEASE);
		rs_run_give(first, had_chunks, owner, !all);
		return to;
	}
	chunk_at(first)->run_bytes = is;
	return p;
}

void rs_runs_count(struct rs_alloc_counts *c)
{
	rs_alloc_lock(&T.lock, 0);
	for (uint32_t i = 0; i < used; i++) {
		c->held += bit(committed, i) ? RS_CHUNK : 0;
		c->free += bit(committed, i) && bit(unused, i) ? RS_CHUNK : 0;
		if (!bit(unused, i) && __atomic_load_n(&V.unit[i * UNITS], __ATOMIC_ACQUIRE) == RS_ALLOC_HUGE) {
			c->huge += chunk_at(i)->run_bytes;
			c->huge_blocks++;
		}
	}
	rs_alloc_unlock(&T.lock);
}

/* --- the reservation ---------------------------------------------------------------------------------------------------------------- */

long rs_runs_begin(uintptr_t bytes, bool notes)
{
	/* PROT_NONE and not NORESERVE: it counts for nothing until it is committed, and then as glibc's memory does, so that what is refused natively is refused. */
	bool given = rs_alloc_source.base != 0;
	T.chunks = (uint32_t)(bytes >> RS_CHUNK_BITS);
	size_t tables = sizeof(struct chunk) * T.chunks, flat = (sizeof(uint32_t) + UNITS * sizeof(uint16_t)) * T.chunks, range = given ? 0 : bytes + RS_CHUNK;
	flat = (flat + RS_PAGE - 1) & -RS_PAGE;
	size_t beside = notes ? (size_t)NOTES * T.chunks : 0;
	/* Far from all modules: trampolines have to be near them. */
	long r = RS_SYS6(SYS_mmap, 0x100000000000, range + tables + flat + beside, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (r < 0 && r > -4096)
		return r;
	uintptr_t at = (uintptr_t)r, end = at + range + tables + flat + beside;
	RS_SYS3(SYS_madvise, at, end - at, MADV_DONTDUMP);
	uintptr_t base = given ? rs_alloc_source.base : (at + RS_CHUNK - 1) & -(uintptr_t)RS_CHUNK;
	T.chunk = (struct chunk *)(given ? at : base + bytes);
	uintptr_t small = (uintptr_t)T.chunk + tables;
	/* Tables by chunk and unit: of these only what is used is touched; NORESERVE, since it is little of much. */
	long m = RS_SYS6(SYS_mmap, small, flat, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
	if (m < 0 && m > -4096) {
		RS_SYS2(SYS_munmap, at, end - at);
		return m;
	}
	RS_SYS3(SYS_madvise, small, flat, MADV_DONTDUMP);
	V.unit = (uint16_t *)small;
	V.owner = (uint32_t *)(small + UNITS * sizeof(uint16_t) * T.chunks);
	V.note = notes ? (uint32_t *)(small + flat) : NULL;
	if (notes)
		rs_os_own((uintptr_t)V.note, beside);
	V.base = base;
	V.reserved = bytes;
	used = lowest = had = noted = dirty_free = 0;
	return 0;
}
