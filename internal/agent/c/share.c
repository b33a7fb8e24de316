/* share.c: the region, its blocks, and malloc's large blocks in it where the heap is not the agent's own (share.h).
 *
 * Ground rules: general registers only. What is known of blocks lies beside the region, so that nothing here faults under the lock. */
#include "share.h"
#include "dispatch.h"
#include "patch.h"
#include <asm/prctl.h>
#include <elf.h>
#include <errno.h>
#include <linux/memfd.h>
#include <sys/auxv.h>
#include <sys/mman.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

enum { BLOCKS = 1 << 16, RUNS = 4096, GIB_BITS = 30 };

uint32_t rs_share_on;
struct share_region rs_share;
struct rs_lock rs_share_lock;

static struct share_block *blocks; /* [0] is none */
static uint32_t used_blocks = 1, free_blocks;
static uint32_t *block_of;         /* by page of the region */
static uint32_t *block_at;         /* by page of the address space: blocks that the program has elsewhere */
static uint32_t *outside;          /* by GiB of it: pages of theirs */
static uint32_t fresh;             /* pages of the region that were ever used */
static struct run { uint32_t page, pages; } runs[RUNS]; /* free, below `fresh`; what finds no place is lost */
static unsigned run_count;
static bool retired;

/* --- blocks ----------------------------------------------------------------------------------------------------------------------- */

static uintptr_t address(uint32_t page) { return rs_share.base + ((uintptr_t)page << SHARE_PAGE_BITS); }

struct share_block *rs_share_block(uintptr_t p)
{
	bool elsewhere = !rs_share_has(p) || rs_share_is_heap(p);
	if (elsewhere && !(rs_share_bits(p) & SHARE_GLOBAL))
		return NULL;
	uint32_t i = elsewhere ? block_at[p >> SHARE_PAGE_BITS] : block_of[(p - rs_share.base) >> SHARE_PAGE_BITS];
	return i ? &blocks[i] : NULL;
}

/* Without the table: of a part of a block, whose other part may have another state. */
static void index_part(uintptr_t at, uint32_t pages, uint32_t i)
{
	for (uint32_t k = 0; k < pages; k++)
		block_at[(at >> SHARE_PAGE_BITS) + k] = i;
}

static void set_table(uintptr_t at, uint32_t pages, uint8_t bits)
{
	for (uint32_t k = 0; k < pages; k++)
		__atomic_store_n(&rs_share.table[(at >> SHARE_PAGE_BITS) + k], bits, __ATOMIC_RELAXED);
}

static void count_outside(uintptr_t at, size_t n, bool there)
{
	for (uintptr_t p = at, next; p < at + n; p = next) {
		next = (p | ((1ul << GIB_BITS) - 1)) + 1;
		uint32_t pages = (uint32_t)(((next < at + n ? next : at + n) - p) >> SHARE_PAGE_BITS);
		__atomic_fetch_add(&outside[p >> GIB_BITS], there ? pages : -pages, __ATOMIC_RELAXED);
	}
}

void rs_share_put(struct share_block *b, uintptr_t at)
{
	rs_share_lent_forget(b);
	if (b->at) {
		set_table(b->at, b->pages, 0);
		index_part(b->at, b->pages, 0);
		count_outside(b->at, rs_share_bytes(b), false);
	}
	b->at = at;
	if (at) {
		count_outside(at, rs_share_bytes(b), true);
		index_part(at, b->pages, (uint32_t)(b - blocks));
		set_table(at, b->pages, b->state == SHARE_SHARED ? SHARE_GLOBAL | SHARE_JUDGED : SHARE_GLOBAL);
	}
}

struct share_block *rs_share_next(uintptr_t lo, uintptr_t hi)
{
	enum { WORD = sizeof(uint64_t) };
	if (!rs_share.base)
		return NULL;
	if (hi > 1ul << SHARE_TABLE_BITS)
		hi = 1ul << SHARE_TABLE_BITS;
	for (uintptr_t p = lo & -RS_PAGE; p < hi;) {
		uintptr_t page = p >> SHARE_PAGE_BITS;
		if (!__atomic_load_n(&outside[p >> GIB_BITS], __ATOMIC_RELAXED))
			p = (p | ((1ul << GIB_BITS) - 1)) + 1;
		else if (page % WORD == 0 && *(const uint64_t *)&rs_share.table[page] == 0)
			p += WORD << SHARE_PAGE_BITS;
		else if (rs_share.table[page] & SHARE_GLOBAL && block_at[page])
			return &blocks[block_at[page]];
		else
			p += RS_PAGE;
	}
	return NULL;
}

long rs_share_tag(struct share_block *b, enum share_state state, uint8_t key)
{
	uintptr_t at = rs_share_address(b);
	if (state != SHARE_SHARED && b->lends) {
		rs_share_lent_forget(b);
		b->key = 0xff; /* some of it has another */
	}
	uint8_t *t = rs_share.table + (at >> SHARE_PAGE_BITS), global = b->at ? SHARE_GLOBAL : 0;
	/* An instruction that sees the state goes by the mirror, whatever the key: so the state first where the page is closed, last where it is opened. */
	bool judged = state == SHARE_SHARED;
	for (uint32_t i = 0; judged && i < b->pages; i++)
		__atomic_store_n(&t[i], global | SHARE_JUDGED, __ATOMIC_RELAXED);
	if (key != b->key) {
		long r = RS_SYS4(SYS_pkey_mprotect, at, rs_share_bytes(b), PROT_READ | PROT_WRITE, key);
		if (r < 0)
			return r;
		b->key = key;
	}
	for (uint32_t i = 0; !judged && b->state == SHARE_SHARED && i < b->pages; i++)
		__atomic_store_n(&t[i], global, __ATOMIC_RELAXED);
	if (state != SHARE_RESTING && b->rest) {
		rs_share_rest_count(b->rest, -1);
		b->rest = 0;
	}
	b->state = (uint8_t)state;
	return 0;
}

void rs_share_each(void (*fn)(struct share_block *b, void *arg), void *arg)
{
	for (uint32_t i = 1; i < used_blocks; i++)
		if (blocks[i].state != SHARE_FREE)
			fn(&blocks[i], arg);
}

static void give_run(uint32_t page, uint32_t pages)
{
	for (unsigned i = 0; i < run_count; i++) {
		if (runs[i].page + runs[i].pages == page || page + pages == runs[i].page) {
			page = page < runs[i].page ? page : runs[i].page;
			pages += runs[i].pages;
			runs[i] = runs[--run_count];
			i = ~0u; /* from the start: it may touch another one now */
		}
	}
	if (page + pages == fresh)
		fresh = page;
	else if (run_count < RUNS)
		runs[run_count++] = (struct run){page, pages};
}

/* ~0: there is no room. */
static uint32_t take_run(uint32_t pages, uint32_t align)
{
	for (unsigned i = 0; i < run_count; i++) {
		uint32_t page = (runs[i].page + align - 1) & -align, end = runs[i].page + runs[i].pages;
		if (page < end && end - page >= pages && (page == runs[i].page || run_count < RUNS - 1)) {
			struct run was = runs[i];
			runs[i] = runs[--run_count];
			if (page > was.page)
				runs[run_count++] = (struct run){was.page, page - was.page};
			if (page + pages < end)
				runs[run_count++] = (struct run){page + pages, end - page - pages};
			return page;
		}
	}
	uint32_t page = (fresh + align - 1) & -align;
	if (page < fresh || pages > SHARE_PAGES - page)
		return ~0u;
	uint32_t was = fresh;
	fresh = page + pages;
	if (page > was)
		give_run(was, page - was);
	return page;
}

struct share_block *rs_share_block_new(uint32_t pages, uint32_t align)
{
	uint32_t i = free_blocks ? free_blocks : used_blocks < BLOCKS ? used_blocks : 0, page = i ? take_run(pages, align) : ~0u;
	if (page == ~0u)
		return NULL;
	struct share_block *b = &blocks[i];
	if (i == free_blocks)
		free_blocks = b->next;
	else
		used_blocks++;
	/* As it was given back its key may be any; 0xff is none. */
	*b = (struct share_block){.page = page, .pages = pages, .state = SHARE_OPEN, .key = 0xff};
	for (uint32_t k = 0; k < pages; k++)
		block_of[page + k] = i;
	return b;
}

void rs_share_block_free(struct share_block *b)
{
	rs_share_lent_forget(b);
	for (uint32_t k = 0; k < b->pages; k++)
		block_of[b->page + k] = 0;
	give_run(b->page, b->pages);
	rs_share_rest_count(b->rest, -1);
	b->state = SHARE_FREE;
	b->next = free_blocks;
	free_blocks = (uint32_t)(b - blocks);
}

struct share_block *rs_share_block_split(struct share_block *b, uint32_t n)
{
	uint32_t i = free_blocks ? free_blocks : used_blocks < BLOCKS ? used_blocks : 0;
	if (!i)
		return NULL;
	struct share_block *c = &blocks[i];
	if (i == free_blocks)
		free_blocks = c->next;
	else
		used_blocks++;
	*c = *b;
	rs_share_rest_count(c->rest, 1);
	c->page += n;
	c->pages -= n;
	b->pages = n;
	if (b->at) {
		c->at += (uintptr_t)n << SHARE_PAGE_BITS;
		index_part(c->at, c->pages, i);
	}
	for (uint32_t k = 0; k < c->pages; k++)
		block_of[c->page + k] = i;
	return c;
}

/* --- malloc ------------------------------------------------------------------------------------------------------------------------- */

static __typeof__(rs_real) libc; /* what rs_real had */

static void *get(size_t n, size_t align)
{
	uint64_t pages = (n + (1 << SHARE_PAGE_BITS) - 1) >> SHARE_PAGE_BITS;
	if (n > SHARE_HEAP / 2 || align > SHARE_HEAP / 4 || retired || rs_in_vfork())
		return NULL;
	align = align >> SHARE_PAGE_BITS ? align >> SHARE_PAGE_BITS : 1;
	void *p = NULL;
	struct rs_thread *t = rs_thread_tls;
	uint64_t mask = rs_os_no_signals();
	rs_lock(&rs_share_lock);
	struct share_block *b = rs_share_block_new((uint32_t)pages, (uint32_t)align);
	if (b) {
		b->first = t ? t->number : 0;
		if (rs_share_tag(b, SHARE_UNOWNED, rs_share.key) == 0 || rs_share_tag(b, SHARE_OPEN, 0) == 0)
			p = (void *)address(b->page);
		else
			rs_share_block_free(b);
	}
	rs_unlock(&rs_share_lock);
	rs_os_signals(mask);
	return p;
}

static void put(void *p)
{
	uint64_t mask = rs_os_no_signals();
	rs_lock(&rs_share_lock);
	struct share_block *b = rs_share_block((uintptr_t)p);
	if (b && !b->at && address(b->page) == (uintptr_t)p) {
		/* What is freed reads as zeros, and faults nowhere: of what is accessed after it was freed the detector tells. */
		RS_SYS3(SYS_madvise, p, rs_share_bytes(b), MADV_REMOVE);
		rs_share_tag(b, SHARE_OPEN, 0);
		rs_share_block_free(b);
	}
	rs_unlock(&rs_share_lock);
	rs_os_signals(mask);
}

static size_t size_of(void *p)
{
	uint64_t mask = rs_os_no_signals();
	rs_lock(&rs_share_lock);
	struct share_block *b = rs_share_block((uintptr_t)p);
	size_t n = b && address(b->page) == (uintptr_t)p ? rs_share_bytes(b) : 0;
	rs_unlock(&rs_share_lock);
	rs_os_signals(mask);
	return n;
}

static void *my_malloc(size_t n)
{
	void *p = n >= SHARE_LEAST ? get(n, 1) : NULL;
	return p ? p : libc.malloc(n);
}

static void *my_calloc(size_t m, size_t n)
{
	size_t total;
	void *p = !__builtin_mul_overflow(m, n, &total) && total >= SHARE_LEAST ? get(total, 1) : NULL; /* its pages are new, or were given back */
	return p ? p : libc.calloc(m, n);
}

static void *my_memalign(size_t align, size_t n)
{
	void *p = n >= SHARE_LEAST && align && !(align & (align - 1)) ? get(n, align) : NULL;
	return p ? p : libc.memalign(align, n);
}

static void *my_aligned_alloc(size_t align, size_t n)
{
	void *p = n >= SHARE_LEAST && align && !(align & (align - 1)) ? get(n, align) : NULL;
	return p ? p : libc.aligned_alloc(align, n);
}

static int my_posix_memalign(void **to, size_t align, size_t n)
{
	void *p = n >= SHARE_LEAST && align >= sizeof(void *) && !(align & (align - 1)) ? get(n, align) : NULL;
	if (!p)
		return libc.posix_memalign(to, align, n);
	*to = p;
	return 0;
}

static void *my_valloc(size_t n)
{
	void *p = n >= SHARE_LEAST ? get(n, 1) : NULL;
	return p ? p : libc.valloc(n);
}

static void *my_pvalloc(size_t n)
{
	void *p = n >= SHARE_LEAST ? get(n, 1) : NULL;
	return p ? p : libc.pvalloc(n);
}

static void my_free(void *p)
{
	if (rs_share_has((uintptr_t)p))
		put(p);
	else
		libc.free(p);
}

static size_t my_usable_size(void *p) { return rs_share_has((uintptr_t)p) ? size_of(p) : libc.malloc_usable_size(p); }

/* The bytes are moved with the program's memory open. */
static void *my_realloc(void *old, size_t n)
{
	size_t had = old ? my_usable_size(old) : 0;
	if (!old || n == 0 || (!rs_share_has((uintptr_t)old) && n < SHARE_LEAST))
		return !old ? my_malloc(n) : n == 0 && rs_share_has((uintptr_t)old) ? (put(old), NULL) : libc.realloc(old, n);
	if (rs_share_has((uintptr_t)old) && n <= had && n > had / 2)
		return old;
	void *p = n >= SHARE_LEAST ? get(n, 1) : libc.malloc(n);
	if (!p && !rs_share_has((uintptr_t)old))
		return libc.realloc(old, n);
	if (!p && !(p = libc.malloc(n)))
		return NULL;
	uint32_t rights = share_rights();
	share_set_rights(0);
	rs_os_copy(p, old, had < n ? had : n);
	rs_share_restore(rights);
	my_free(old);
	return p;
}

static void *my_reallocarray(void *old, size_t m, size_t n) { return my_realloc(old, m * n); /* heap.c has looked at the product */ }

static void interpose(void)
{
	libc = rs_real;
#define MINE(name) if (rs_real.name) rs_real.name = my_##name
	MINE(malloc); MINE(calloc); MINE(realloc); MINE(reallocarray); MINE(free); MINE(memalign); MINE(aligned_alloc); MINE(posix_memalign); MINE(valloc); MINE(pvalloc);
#define SECOND(name, mine) if (rs_real.name) rs_real.name = mine
	SECOND(malloc_usable_size, my_usable_size);
	SECOND(cfree, my_free); SECOND(__libc_free, my_free); SECOND(__libc_malloc, my_malloc); SECOND(__libc_calloc, my_calloc); SECOND(__libc_realloc, my_realloc);
	SECOND(__libc_memalign, my_memalign); SECOND(__libc_valloc, my_valloc); SECOND(__libc_pvalloc, my_pvalloc);
}

/* --- life ------------------------------------------------------------------------------------------------------------------------------ */

static long map_shared(uintptr_t at, int fd)
{
	long r = RS_SYS6(SYS_mmap, at, SHARE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | (at ? MAP_FIXED_NOREPLACE : 0), fd, 0);
	if (r > 0 && at && (uintptr_t)r != at) {
		RS_SYS2(SYS_munmap, r, SHARE_BYTES);
		return -EEXIST;
	}
	return r;
}

void *rs_share_sparse(size_t bytes)
{
	long p = RS_SYS6(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p < 0 && p > -4096)
		return NULL;
	RS_SYS3(SYS_madvise, p, bytes, MADV_DONTDUMP);
	RS_SYS3(SYS_madvise, p, bytes, MADV_NOHUGEPAGE);
	return (void *)p;
}

/* Libraries lie at the upper end of the address space, so their mirrors can only be below, and programs that are linked to a fixed address at the lower one. A negative base of GS needs the
 * instruction (arch_prctl takes none), which the kernel must have allowed. */
static bool set_away(void)
{
	enum { FSGSBASE = 2 };
	uintptr_t up = 1ul << 45, now = 0;
	bool fixed = getauxval(AT_PHDR) < up;
	rs_share.away = fixed || !(getauxval(AT_HWCAP2) & FSGSBASE) ? up : -up;
	if (rs_share.away == up)
		return RS_SYS2(SYS_arch_prctl, ARCH_SET_GS, up) == 0;
	__asm__ volatile("wrgsbase %0" : : "r"(rs_share.away));
	__asm__ volatile("rdgsbase %0" : "=r"(now));
	return now == rs_share.away;
}

static bool make_region(void)
{
	long fd = RS_SYS2(SYS_memfd_create, "ripstop-heap", MFD_CLOEXEC);
	if (fd < 0)
		return false;
	long at = -ENOMEM;
	/* The upper one of the two is where the kernel likes it. */
	bool up = (long)rs_share.away > 0;
	uintptr_t down = up ? rs_share.away : -rs_share.away;
	if (RS_SYS2(SYS_ftruncate, fd, SHARE_BYTES) == 0 && (at = map_shared(0, (int)fd)) > 0 && map_shared((uintptr_t)at - down, (int)fd) < 0) {
		RS_SYS2(SYS_munmap, at, SHARE_BYTES);
		at = -ENOMEM;
	}
	RS_SYS1(SYS_close, fd);
	if (at < 0)
		return false;
	rs_share.base = up ? (uintptr_t)at - down : (uintptr_t)at;
	rs_share.heap = rs_share.base + SHARE_BYTES;
	RS_SYS3(SYS_madvise, rs_share.base + rs_share.away, SHARE_BYTES, MADV_DONTDUMP);
	return true;
}

/* The program has a note of the Go linker's. Its system calls, which are its own, would be made with memory that is closed, and what is patched needs more stack than goroutines have. */
static bool goes(void)
{
	const Elf64_Phdr *ph = (const Elf64_Phdr *)getauxval(AT_PHDR);
	uintptr_t bias = 0, n = ph ? getauxval(AT_PHNUM) : 0;
	for (uintptr_t i = 0; i < n; i++)
		if (ph[i].p_type == PT_PHDR)
			bias = (uintptr_t)ph - ph[i].p_vaddr;
	for (uintptr_t i = 0; i < n; i++) {
		if (ph[i].p_type != PT_NOTE)
			continue;
		struct { Elf64_Nhdr head; uint32_t name; } h;
		uintptr_t at = bias + ph[i].p_vaddr, end = at + ph[i].p_filesz;
		/* No loader looks at these: what they say may be anything. */
		for (uint64_t size; end - at >= sizeof h && rs_peek(&h, at, sizeof h); at += size) {
			if (h.head.n_namesz == 4 && h.name == ('G' | 'o' << 8))
				return true;
			size = sizeof h.head + (((uint64_t)h.head.n_namesz + 3) & -4ull) + (((uint64_t)h.head.n_descsz + 3) & -4ull);
			if (size > end - at)
				break;
		}
	}
	return false;
}

static bool make_all(void)
{
	uintptr_t gs = 0;
	if (goes())
		return false;
	/* GS is the program's if it, or a library, has set it before us. */
	if (RS_SYS2(SYS_arch_prctl, ARCH_GET_GS, &gs) < 0 || gs != 0 || !rs_share_keys())
		return false;
	rs_share.table = rs_share_sparse(1ul << (SHARE_TABLE_BITS - SHARE_PAGE_BITS));
	blocks = rs_share_sparse(sizeof *blocks * BLOCKS);
	block_of = rs_share_sparse(sizeof *block_of * SHARE_PAGES);
	block_at = rs_share_sparse(sizeof *block_at << (SHARE_TABLE_BITS - SHARE_PAGE_BITS));
	outside = rs_share_sparse(sizeof *outside << (SHARE_TABLE_BITS - GIB_BITS));
	return rs_share.table && rs_share_lent_begin() && blocks && block_of && block_at && outside && set_away() && make_region() && rs_share_faults();
}

uintptr_t rs_share_begin(void)
{
	if (rs_config.races != RS_RACES_SHARED)
		return 0;
	if (!make_all()) {
		rs_share_keys_free();
		rs_share.base = 0;
		rs_os_say("what its threads share cannot be found by protection keys here: all accesses are judged", 0);
		return 0;
	}
	rs_share_calls();
	rs_race_unsure = true;
	rs_share_on = rs_os_detour = 1;
	rs_share_thread_begin();
	if (!rs_share_heap_begin())
		interpose();
	return (uintptr_t)rs_share.table;
}

static void open_one(struct share_block *b, void *arg)
{
	(void)arg;
	rs_share_tag(b, SHARE_OPEN, 0);
}

void rs_share_attributes(const pthread_attr_t *a)
{
	void *stack = NULL;
	size_t n = 0;
	if (rs_share_on && pthread_attr_getstack(a, &stack, &n) == 0 && stack)
		rs_share_unwatch((uintptr_t)stack, n);
}

void rs_share_unwatch(uintptr_t p, size_t n)
{
	if (!rs_share.base || !n || p + n < p)
		return;
	rs_share_maps_open(p, n);
	if (p >= rs_share.base + SHARE_BYTES || p + n <= rs_share.base)
		return;
	uintptr_t at = p < rs_share.base ? rs_share.base : p, end = p + n < rs_share.heap ? p + n : rs_share.heap;
	uint64_t mask = rs_os_no_signals();
	rs_lock(&rs_share_lock);
	if (p + n > rs_share.heap)
		rs_share_heap_unwatch(p, p + n);
	while (at < end) {
		struct share_block *b = rs_share_block(at);
		if (b)
			rs_share_tag(b, SHARE_OPEN, 0);
		at = b ? address(b->page) + rs_share_bytes(b) : (at | ((1ul << SHARE_PAGE_BITS) - 1)) + 1;
	}
	rs_unlock(&rs_share_lock);
	rs_os_signals(mask);
}

void rs_share_stack(uintptr_t sp)
{
	if (!rs_share_on)
		return;
	uint64_t mask = rs_os_no_signals();
	rs_lock(&rs_share_lock);
	struct share_block *b = rs_share_block(sp - 1);
	if (b)
		rs_share_tag(b, SHARE_OPEN, 0);
	rs_unlock(&rs_share_lock);
	rs_os_signals(mask);
}

void rs_share_retire_locked(const char *why)
{
	bool first = !retired;
	retired = true;
	rs_share_each(open_one, NULL);
	rs_share_heap_open();
	if (first)
		rs_share_keys_free();
	rs_share_on = 0;
	rs_share_left = 1;
	rs_os_detour = rs_dispatch_on;
	rs_share_thread_begin();
	if (first && why)
		rs_os_say(why, 0);
}

void rs_share_retire(const char *why)
{
	uint64_t mask = rs_os_no_signals();
	rs_lock(&rs_share_lock);
	rs_share_retire_locked(why);
	rs_unlock(&rs_share_lock);
	rs_os_signals(mask);
}
