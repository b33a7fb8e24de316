/* shareheap.c: the agent's own heap (alloc.h) in watched memory (share.h). Its chunks are the upper half of the region. What is handed out to a thread is tagged as that thread's at once, so that its own
 * memory takes no fault; and each page has a state of its own, since blocks of one chunk go to many threads.
 *
 * What a second thread touches becomes shared by UNITs, and by whole chunks when half of one is, or when the kernel has many mappings of them already: a process may have 65,530, of which each change of keys
 * from one page to the next takes one. Shared memory stays so until its chunk is handed out again; what is not goes from thread to thread with the order of what they do (sharerest.c).
 *
 * Ground rules: as share.c. The allocator calls with locks of its own held; the lock here is the inner one. What it knows lies beside the region, and what it accesses of blocks (calloc, realloc) it accesses by
 * the mirror, so it need not open anything, and no fault comes from within it. */
#include "share.h"
#include "alloc.h"
#include "heap.h"
#include <dlfcn.h>
#include <errno.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <sys/auxv.h>
#include <sys/mman.h>

enum { UNIT = 4, CHUNK = RS_CHUNK >> SHARE_PAGE_BITS, HALF = CHUNK / 2, BORDERS = 12000 };

/* SHARE_FREE: not committed, and has no access at all. */
static struct page {
	uint32_t owner;      /* PRIVATE, STRIPPED, RESTING, or was when it was last touched */
	uint16_t rest;       /* RESTING, UNOWNED, STRIPPED: since when; 0: that is not known */
	uint8_t state, key;
	uint8_t again;       /* how often its owner took it back */
	uint8_t lends, asks; /* how often it was lent, and how often it might have been since */
	bool lent;           /* PRIVATE, STRIPPED: it is shared, but one thread alone has used it for long */
} *pages; /* of the heap's half */
static struct { uint16_t keys, shared; } *chunks;                  /* keys: bits of those that pages may have */
static uint32_t borders;                                           /* between committed pages of different keys */

static uintptr_t start(void) { return rs_share.heap; }
static uintptr_t address(uint32_t page) { return start() + ((uintptr_t)page << SHARE_PAGE_BITS); }
static uint32_t page_at(uintptr_t p) { return (uint32_t)((p - start()) >> SHARE_PAGE_BITS); }
static uint8_t *table_at(uint32_t page) { return rs_share.table + (address(page) >> SHARE_PAGE_BITS); }
static uint32_t used(void) { return rs_alloc_source.base ? (uint32_t)(__atomic_load_n(&rs_alloc.limit, __ATOMIC_ACQUIRE) >> SHARE_PAGE_BITS) : 0; }

/* --- tags ------------------------------------------------------------------------------------------------------------------------------- */

static bool differ(uint32_t a, uint32_t b) { return pages[a].key != pages[b].key || (pages[a].state == SHARE_FREE) != (pages[b].state == SHARE_FREE); }

static uint32_t borders_of(uint32_t first, uint32_t n)
{
	uint32_t sum = 0;
	for (uint32_t i = first ? first : 1; i <= first + n && i < SHARE_HEAP_PAGES; i++)
		sum += differ(i - 1, i);
	return sum;
}

/* All that is set of pages that are alike but for that; prot: PROT_NONE makes them FREE. 0, or a negative errno. */
static long set_since(uint32_t first, uint32_t n, enum share_state state, uint8_t key, uint32_t owner, uint16_t rest)
{
	bool free = state == SHARE_FREE, same = true;
	uint32_t had = borders_of(first, n);
	for (uint32_t i = first; i < first + n; i++)
		same = same && pages[i].key == key && (pages[i].state == SHARE_FREE) == free;
	if (!same) {
		long r = rs_share.deny ? RS_SYS4(SYS_pkey_mprotect, address(first), (size_t)n << SHARE_PAGE_BITS, free ? PROT_NONE : PROT_READ | PROT_WRITE, key)
				       : RS_SYS3(SYS_mprotect, address(first), (size_t)n << SHARE_PAGE_BITS, free ? PROT_NONE : PROT_READ | PROT_WRITE);
		if (r < 0)
			return r;
	}
	for (uint32_t i = first; i < first + n; i++) {
		chunks[i / CHUNK].shared = (uint16_t)(chunks[i / CHUNK].shared + (state == SHARE_SHARED) - (pages[i].state == SHARE_SHARED));
		chunks[i / CHUNK].keys |= (uint16_t)(1u << key);
		bool same_owner = pages[i].owner == owner, stays_lent = same_owner && pages[i].lent && (state == SHARE_PRIVATE || state == SHARE_STRIPPED);
		rs_share_rest_count(pages[i].rest, -1);
		rs_share_rest_count(rest, 1);
		pages[i] = (struct page){owner, rest, (uint8_t)state, key, same_owner ? pages[i].again : 0, free ? 0 : pages[i].lends, 0, stays_lent};
		if (state != SHARE_SHARED) /* last where it is opened; who has seen the state before goes by the mirror */
			__atomic_store_n(table_at(i), 0, __ATOMIC_RELEASE);
	}
	borders += borders_of(first, n) - had;
	return 0;
}

static long set(uint32_t first, uint32_t n, enum share_state state, uint8_t key, uint32_t owner) { return set_since(first, n, state, key, owner, 0); }

/* Who cannot have more mappings watches nothing. Locked. */
static void give_up(void)
{
	rs_share_retire_locked("the kernel allows no more mappings: what its threads share is not looked for any more, and races of it are not found");
}

static bool closable(uint32_t page) { return pages[page].state == SHARE_PRIVATE || pages[page].state == SHARE_UNOWNED || pages[page].state == SHARE_STRIPPED || pages[page].state == SHARE_RESTING; }

/* Closed first: then nobody accesses it untold, so that what was done there untold is known to be over; and nobody goes by the mirror before that is said. For that thread, or 0. lent_too: else what is lent waits
 * until it is touched itself. */
static void share(uint32_t first, uint32_t n, uint32_t number, bool lent_too)
{
	uint32_t end = first + n;
	for (uint32_t i = first, k; i < end; i = k) {
		k = i + 1;
		if (!closable(i) || (pages[i].lent && !lent_too))
			continue;
		uint32_t owner = pages[i].owner;
		uint16_t rest = pages[i].rest;
		bool lent = pages[i].lent;
		while (k < end && closable(k) && pages[k].owner == owner && pages[k].rest == rest && pages[k].lent == lent)
			k++;
		/* Of what was lent accesses were told before, with all that movs may order, and atomics are told at all times. */
		bool known = lent || rs_share_rest_known(rest, number);
		if (set(i, k - i, SHARE_SHARED, rs_share.key, 0) < 0) {
			give_up();
			return;
		}
		__atomic_fetch_add(&rs_counters->share_pages, k - i, __ATOMIC_RELAXED);
		if (owner && !known)
			rs_share_pardon(owner);
		for (uint32_t at = i; at < k; at++)
			__atomic_store_n(table_at(at), 1, __ATOMIC_RELEASE);
	}
}

/* What becomes the calling thread's, or shared if it can own nothing; what was opened for good stays so. */
static long assign_to(uint32_t first, uint32_t n, bool common)
{
	struct rs_thread *t = rs_thread_tls;
	uint32_t number = t ? t->number : 0, before = rs_share_closed();
	uint8_t key = rs_share_on && number && !common ? rs_share_key_mine(number) : 0;
	enum share_state state = key ? SHARE_PRIVATE : rs_share_on ? SHARE_SHARED : SHARE_OPEN;
	if (rs_share_closed() != before && share_rights() == before)
		share_set_rights(rs_share_closed());
	for (uint32_t i = first, end = first + n, k; i < end; i = k) {
		k = i + 1;
		if (pages[i].state == SHARE_OPEN)
			continue;
		while (k < end && pages[k].state != SHARE_OPEN)
			k++;
		long r = set(i, k - i, state, state == SHARE_SHARED ? rs_share.key : key, key ? number : 0);
		if (r < 0)
			return r;
		for (uint32_t at = i; state == SHARE_SHARED && at < k; at++)
			__atomic_store_n(table_at(at), 1, __ATOMIC_RELEASE);
	}
	return 0;
}

static long assign(uint32_t first, uint32_t n) { return assign_to(first, n, false); }

/* What becomes the common heap's. */
static long assign_common(uint32_t first, uint32_t n) { return assign_to(first, n, true); }

static bool is_common(uint32_t owner) { return owner == __atomic_load_n(&rs_alloc_common_heap, __ATOMIC_RELAXED); }

/* --- where the allocator has its pages from --------------------------------------------------------------------------------------------- */

static long locked(long (*fn)(uint32_t first, uint32_t n), uintptr_t at, size_t bytes)
{
	uint64_t mask = rs_os_no_signals();
	rs_lock(&rs_share_lock);
	long r = fn(page_at(at), (uint32_t)(bytes >> SHARE_PAGE_BITS));
	rs_unlock(&rs_share_lock);
	rs_os_signals(mask);
	return r;
}

static long commit(uintptr_t at, size_t bytes, uint32_t owner)
{
	return locked(is_common(owner) ? assign_common : assign, at, bytes); /* else it is the calling thread's */
}

static long let_go(uint32_t first, uint32_t n)
{
	RS_SYS3(SYS_madvise, address(first) + rs_share.away, (size_t)n << SHARE_PAGE_BITS, MADV_REMOVE);
	return set(first, n, SHARE_FREE, 0, 0);
}
static void decommit(uintptr_t at, size_t bytes) { locked(let_go, at, bytes); }

/* Of the mirror, to which everybody may write. */
static long purge(uintptr_t at, size_t bytes) { return RS_SYS3(SYS_madvise, at + rs_share.away, bytes, MADV_REMOVE); }

static long hand(uintptr_t at, size_t bytes, uint32_t from, uint32_t to)
{
	(void)from;
	return to ? locked(is_common(to) ? assign_common : assign, at, bytes) : 0; /* nobody's is as it was until it is somebody's */
}

/* Pages of a file stay where they are in it. */
static long move(uintptr_t from, uintptr_t to, size_t bytes)
{
	(void)from, (void)to, (void)bytes;
	return -EINVAL;
}

/* --- what is touched --------------------------------------------------------------------------------------------------------------------- */

bool rs_share_heap_own(uintptr_t p, uint32_t number)
{
	const struct page *g = &pages[page_at(p)];
	return __atomic_load_n(&g->state, __ATOMIC_RELAXED) == SHARE_PRIVATE && __atomic_load_n(&g->owner, __ATOMIC_RELAXED) == number;
}

/* All that lies around a page and is its owner's as well. False: there is no key for it. */
static bool own_again(uint32_t page, uint32_t number)
{
	uint8_t key = rs_share_key_mine(number);
	uint32_t lo = page, hi = page + 1, chunk = page & -(uint32_t)CHUNK;
	if (!key)
		return pages[page].state == SHARE_OPEN;
	while (lo > chunk && pages[lo - 1].state == SHARE_STRIPPED && pages[lo - 1].owner == number)
		lo--;
	while (hi < chunk + CHUNK && pages[hi].state == SHARE_STRIPPED && pages[hi].owner == number)
		hi++;
	if (set(lo, hi - lo, SHARE_PRIVATE, key, number) < 0)
		give_up();
	return true;
}

static void share_around(uint32_t page, uint32_t number)
{
	if (pages[page].lent)
		share(page, 1, number, true);
	else if (chunks[page / CHUNK].shared >= HALF || borders > BORDERS)
		share(page & -(uint32_t)CHUNK, CHUNK, number, borders > BORDERS);
	else
		share(page & -(uint32_t)UNIT, UNIT, number, false);
}

/* The thread may have the page, and what lies near it and is as it is. back: it had it before. False: there is no key. */
static bool own_near(uint32_t page, uint32_t number, bool back)
{
	uint64_t since = share_counter();
	uint8_t key = rs_share_key_mine(number);
	struct page was = pages[page];
	uint32_t first = page & -(uint32_t)UNIT, end = first + UNIT;
	if (!key)
		return false;
	bool known = back || !was.owner || rs_share_rest_known(was.rest, number);
	for (uint32_t k = first, m; k < end; k = m) {
		m = k + 1;
		if (pages[k].state != was.state || pages[k].owner != was.owner || pages[k].rest != was.rest)
			continue;
		while (m < end && pages[m].state == was.state && pages[m].owner == was.owner && pages[m].rest == was.rest)
			m++;
		if (set(k, m - k, SHARE_PRIVATE, key, number) < 0) {
			give_up();
			return true;
		}
		for (uint32_t i = k; back && i < m; i++)
			pages[i].again = pages[i].again < SHARE_NEVER - 1 ? pages[i].again + 1 : pages[i].again;
	}
	if (!known)
		rs_share_pardon(was.owner);
	if (back)
		rs_share_took_back(since);
	return true;
}

bool rs_share_heap_touched(uintptr_t p, uint32_t number)
{
	uint32_t i = page_at(p);
	switch ((enum share_state)pages[i].state) {
	case SHARE_FREE:
	case SHARE_OPEN:
		return true;
	case SHARE_SHARED:
		return false;
	case SHARE_UNOWNED:
		if (number && own_near(i, number, false))
			return true;
		break;
	case SHARE_RESTING:
		if (number && (pages[i].owner == number || rs_share_ended(pages[i].owner)) && own_near(i, number, pages[i].owner == number))
			return true;
		break;
	case SHARE_PRIVATE:
		if (pages[i].owner == number)
			return true;
		break;
	case SHARE_STRIPPED:
		if (pages[i].owner == number && own_again(i, number))
			return true;
		break;
	}
	/* What went untold says something of the allocation, and what had to be ordered says nothing. */
	if (number && pages[i].owner && pages[i].owner != number && !pages[i].lent && !rs_share_rest_known(pages[i].rest, number))
		rs_share_found(p);
	share_around(i, number);
	return pages[i].state != SHARE_SHARED;
}

bool rs_share_heap_touched_at(uintptr_t p, uint32_t number, uintptr_t sp)
{
	bool goes_on = rs_share_heap_touched(p, number);
	uintptr_t block;
	size_t n;
	if (rs_share_is_heap(sp) && rs_alloc_block_of(p, &block, &n) && sp - block < n)
		pages[page_at(p)].again = SHARE_NEVER;
	return goes_on;
}

/* So many pages rest that are alike. */
static bool rest_run(uint32_t first, uint32_t n, uint32_t number, uint16_t rest)
{
	if (n && set_since(first, n, SHARE_RESTING, rs_share.key, number, rest) < 0) {
		give_up();
		return false;
	}
	return true;
}

void rs_share_heap_rest(uint32_t number, uint8_t key, uint32_t round, uint16_t rest, uintptr_t sp)
{
	uintptr_t stack = 0;
	size_t of_stack = 0;
	if (!rs_alloc_source.base || borders > BORDERS)
		return;
	if (rs_share_is_heap(sp))
		rs_alloc_block_of(sp, &stack, &of_stack);
	uint32_t from = 0, n = 0;
	for (uint32_t c = 0, chunks_used = used() / CHUNK; c < chunks_used; c++) {
		bool keeps = false;
		if (!(chunks[c].keys >> key & 1))
			continue;
		for (uint32_t i = c * CHUNK; i < (c + 1) * CHUNK; i++) {
			bool its = pages[i].state == SHARE_PRIVATE && pages[i].owner == number;
			bool rests = its && !pages[i].lent && rs_share_rests(pages[i].again, round) && !(of_stack && address(i) < stack + of_stack && address(i + 1) > stack);
			keeps |= its && !rests;
			if (rests && n && from + n == i) {
				n++;
			} else if (rests) {
				if (!rest_run(from, n, number, rest))
					return;
				from = i, n = 1;
			}
		}
		if (!keeps)
			chunks[c].keys &= (uint16_t)~(1u << key);
	}
	rest_run(from, n, number, rest);
}

void rs_share_heap_lend(uintptr_t p, uint32_t number)
{
	enum { MOST = 8 };
	uint32_t i = page_at(p);
	if (pages[i].state != SHARE_SHARED || pages[i].lends == MOST || ++pages[i].asks >> pages[i].lends == 0 || borders > BORDERS)
		return;
	uint32_t before = rs_share_closed();
	uint8_t key = rs_share_key_spare(number);
	if (rs_share_closed() != before && share_rights() == before)
		share_set_rights(rs_share_closed());
	if (!key)
		return;
	if (set(i, 1, SHARE_PRIVATE, key, number) < 0) {
		give_up();
		return;
	}
	pages[i].lent = true;
	pages[i].lends++;
	__atomic_fetch_add(&rs_counters->share_lent, 1, __ATOMIC_RELAXED);
}

void rs_share_heap_atomic(uintptr_t p, uint32_t number)
{
	uint32_t i = page_at(p);
	if (!pages[i].lent)
		return;
	uint32_t owner = pages[i].owner;
	share(i, 1, number, true);
	if (owner != number)
		rs_share_pardon(owner);
}

void rs_share_freed(uintptr_t p)
{
	uintptr_t block;
	size_t n;
	if (!rs_share_is_heap(p) || !rs_alloc_block_of(p, &block, &n))
		return;
	for (uint32_t i = page_at(block), end = page_at(block + n - 1) + 1; i < end; i++) {
		if (RS_LIKELY(!__atomic_load_n(&pages[i].lent, __ATOMIC_RELAXED)))
			continue;
		uint64_t mask = rs_os_no_signals();
		rs_lock(&rs_share_lock);
		if (pages[i].lent)
			share(i, 1, 0, true);
		rs_unlock(&rs_share_lock);
		rs_os_signals(mask);
	}
}

bool rs_share_heap_lent(uintptr_t p) { return __atomic_load_n(&pages[page_at(p)].lent, __ATOMIC_RELAXED); }

void rs_share_heap_shared(uintptr_t from, uintptr_t to)
{
	uint32_t first = page_at(from) & -(uint32_t)UNIT, end = (page_at(to - 1) | (UNIT - 1)) + 1;
	if (borders > BORDERS)
		first &= -(uint32_t)CHUNK, end = (end + CHUNK - 1) & -(uint32_t)CHUNK;
	share(first, end - first, 0, false);
}

void rs_share_heap_unwatch(uintptr_t from, uintptr_t to)
{
	if (from < start())
		from = start();
	for (uint32_t i = page_at(from); address(i) < to && i < used(); i++)
		if (pages[i].state != SHARE_FREE && pages[i].state != SHARE_OPEN && set(i, 1, SHARE_OPEN, 0, 0) < 0)
			give_up();
}

/* Calls fn for runs of pages that are alike, of chunks that may have the key. */
static void each(uint16_t keys, void (*fn)(uint32_t first, uint32_t n, const void *arg), const void *arg)
{
	for (uint32_t i = 0, end = used(), k; i < end; i = k) {
		k = i + 1;
		if (!(chunks[i / CHUNK].keys & keys)) {
			k = (i / CHUNK + 1) * CHUNK;
			continue;
		}
		while (k < end && pages[k].state == pages[i].state && pages[k].owner == pages[i].owner && pages[k].lent == pages[i].lent)
			k++;
		if (pages[i].state != SHARE_FREE)
			fn(i, k - i, arg);
	}
}

struct leaving { uint32_t number; enum share_state state; uint16_t rest; };

static void leave(uint32_t first, uint32_t n, const void *arg)
{
	const struct leaving *l = arg;
	if ((pages[first].state != SHARE_PRIVATE && pages[first].state != SHARE_STRIPPED) || pages[first].owner != l->number)
		return;
	if (pages[first].lent && l->state == SHARE_UNOWNED)
		share(first, n, 0, true);
	else if (set_since(first, n, l->state, rs_share.key, l->number, l->rest) < 0)
		give_up();
}

static void lose(uint16_t keys, uint8_t key, struct leaving l)
{
	if (!keys || !rs_alloc_source.base)
		return;
	each(keys, leave, &l);
	for (uint32_t c = 0, end = used() / CHUNK; key && c < end; c++)
		chunks[c].keys &= (uint16_t)~(1u << key);
}

static uint16_t bit(uint8_t key) { return (uint16_t)(key ? 1u << key : 0); }

void rs_share_heap_end(uint32_t number, uint8_t key, bool stripped, uint16_t rest) { lose(bit(key) | bit(stripped ? rs_share.key : 0), key, (struct leaving){number, SHARE_UNOWNED, rest}); }
void rs_share_heap_strip(uint32_t number, uint8_t key, uint16_t rest) { lose(bit(key), key, (struct leaving){number, SHARE_STRIPPED, rest}); }

static void open_run(uint32_t first, uint32_t n, const void *arg)
{
	(void)arg;
	set(first, n, SHARE_OPEN, 0, 0);
}

void rs_share_heap_open(void)
{
	if (rs_alloc_source.base)
		each(UINT16_MAX, open_run, NULL);
}

/* --- processes ---------------------------------------------------------------------------------------------------------------------------- */

struct copying { void (*fn)(uintptr_t offset, size_t pages, void *arg); void *arg; };

static void copy_run(uint32_t first, uint32_t n, const void *arg)
{
	const struct copying *c = arg;
	c->fn(address(first) - rs_share.base, n, c->arg);
}

void rs_share_heap_each(void (*fn)(uintptr_t offset, size_t pages, void *arg), void *arg)
{
	const struct copying c = {fn, arg};
	if (rs_alloc_source.base)
		each(UINT16_MAX, copy_run, &c);
}

void rs_share_heap_child(void)
{
	for (uint32_t i = 0, end = used(); i < end; i++)
		pages[i].key = 0; /* what is not committed can be accessed, and that is all */
	borders = 0;
}

/* --- whose blocks are libc's ----------------------------------------------------------------------------------------------------------------- */

/* glibc's own blocks stay libc's: streams, directories, what the loader keeps by thread. None of their accesses is told, each would fault, and some are made in a forked child before a handler of ours runs
 * there, when the region is still its parent's. Of those that are the program's afterwards these are not of that kind. */
static const char *const gives[] = {"strdup", "__strdup", "strndup", "__strndup", "wcsdup", "getdelim", "__getdelim"};
enum { GIVES = sizeof gives / sizeof *gives };
static struct range { uintptr_t at, n; } of_libc[2], given[GIVES];

static bool within(const struct range *r, unsigned n, uintptr_t pc)
{
	for (unsigned i = 0; i < n; i++)
		if (pc - r[i].at < r[i].n)
			return true;
	return false;
}

static bool not_for(uintptr_t pc) { return RS_UNLIKELY(within(of_libc, 2, pc)) && !within(given, GIVES, pc); }

static int find_libc(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size, (void)arg;
	bool loader = info->dlpi_addr && info->dlpi_addr == getauxval(AT_BASE), libc = false;
	uintptr_t lo = UINTPTR_MAX, hi = 0, known = (uintptr_t)gnu_get_libc_version;
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *h = &info->dlpi_phdr[i];
		uintptr_t from = info->dlpi_addr + h->p_vaddr;
		if (h->p_type != PT_LOAD || !(h->p_flags & PF_X))
			continue;
		libc |= known - from < h->p_memsz;
		lo = from < lo ? from : lo;
		hi = from + h->p_memsz > hi ? from + h->p_memsz : hi;
	}
	if ((libc || loader) && lo < hi)
		of_libc[loader] = (struct range){lo, hi - lo};
	return 0;
}

bool rs_share_heap_begin(void)
{
	static struct rs_alloc_source before;
	before = rs_alloc_source;
	pages = rs_share_sparse(sizeof *pages * SHARE_HEAP_PAGES);
	chunks = rs_share_sparse(sizeof *chunks * (SHARE_HEAP_PAGES / CHUNK));
	uintptr_t at = (rs_share.base + SHARE_HEAP + RS_CHUNK - 1) & -(uintptr_t)RS_CHUNK, n = (rs_share.base + SHARE_BYTES - at) & -(uintptr_t)RS_CHUNK;
	if (!pages || !chunks || RS_SYS3(SYS_mprotect, at, n, PROT_NONE) < 0)
		return false;
	dl_iterate_phdr(find_libc, NULL);
	for (unsigned i = 0; i < GIVES; i++) {
		Dl_info info;
		const ElfW(Sym) *symbol = NULL;
		void *f = dlsym(RTLD_NEXT, gives[i]);
		if (f && dladdr1(f, &info, (void **)&symbol, RTLD_DL_SYMENT) && symbol)
			given[i] = (struct range){(uintptr_t)f, symbol->st_size};
	}
	rs_alloc_source = (struct rs_alloc_source){commit, decommit, purge, hand, move, at, n, rs_share.away, not_for, rs_share_common};
	rs_share.heap = at;
	rs_heap_begin(RS_ALLOCATOR_OWNER);
	if (!rs_alloc.on) {
		rs_alloc_source = before;
		rs_share.heap = rs_share.base + SHARE_BYTES;
	}
	return rs_alloc.on;
}
