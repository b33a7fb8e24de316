/* shareglobal.c: variables of the program and its libraries (share.h). They are shared from when a second thread is about to be made: until then all that touched them comes before all that will.
 *
 * What is written of a module's segments, but glibc's and ours, becomes pages of the region's memfd, mapped where it was and as its mirror. That is done while there is one thread, so that nobody writes
 * between the copy and the exchange; libraries that come while there are more are not watched, or only later. */
#include "share.h"
#include "called.h"
#include "proc.h"
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>

enum { MODULES = 1024, MAP_ROOM = 4 << 20 };

static struct { uintptr_t lo, hi, sealed_lo, sealed_hi; } found[MODULES]; /* what a module may write, and what is read only once it is relocated */
static unsigned found_count;
static unsigned long long seen_adds;

/* --- which -------------------------------------------------------------------------------------------------------------------------- */

static int look(struct dl_phdr_info *info, size_t size, void *arg)
{
	unsigned long long *adds = arg;
	uintptr_t sealed_lo = 0, sealed_hi = 0;
	(void)size;
	if (info->dlpi_adds == seen_adds)
		return 1;
	*adds = info->dlpi_adds;
	if (info->dlpi_name && rs_is_glibc(info->dlpi_name))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_GNU_RELRO) {
			sealed_lo = (info->dlpi_addr + info->dlpi_phdr[i].p_vaddr) & -RS_PAGE;
			sealed_hi = (info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz) & -RS_PAGE;
		}
	for (int i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t at = info->dlpi_addr + p->p_vaddr;
		if (p->p_type != PT_LOAD || !(p->p_flags & PF_W) || found_count == MODULES)
			continue;
		found[found_count].lo = at & -RS_PAGE;
		found[found_count].hi = (at + p->p_memsz + RS_PAGE - 1) & -RS_PAGE;
		found[found_count].sealed_lo = sealed_lo;
		found[found_count++].sealed_hi = sealed_hi;
	}
	return 0;
}

/* Threads that nobody told us of count. */
static bool alone(void)
{
	struct stat s;
	return RS_SYS2(SYS_stat, "/proc/self/task", &s) == 0 && s.st_nlink == 3;
}

static uintptr_t number(const char **p, unsigned base)
{
	uintptr_t n = 0;
	for (;; ++*p) {
		unsigned d = **p >= '0' && **p <= '9' ? (unsigned)(**p - '0') : **p >= 'a' && **p <= 'f' ? (unsigned)(**p - 'a') + 10 : 16;
		if (d >= base)
			return n;
		n = n * base + d;
	}
}

static bool skip(const char **p, unsigned fields)
{
	for (; fields; fields--) {
		while (**p && **p != ' ' && **p != '\n')
			++*p;
		if (**p != ' ')
			return false;
		while (**p == ' ')
			++*p;
	}
	return true;
}

/* --- one ------------------------------------------------------------------------------------------------------------------------------ */

static bool is_zero(const uint64_t *p)
{
	for (size_t i = 0; i < RS_PAGE / sizeof *p; i++)
		if (p[i])
			return false;
	return true;
}

/* But for what is swapped out. */
void rs_share_copy(uintptr_t to, uintptr_t from, uint32_t pages, bool anonymous)
{
	enum { MANY = 256 };
	unsigned char here[MANY];
	for (uint32_t i = 0; i < pages; i += MANY) {
		uint32_t n = pages - i < MANY ? pages - i : MANY;
		bool known = anonymous && !rs_share_swaps() && RS_SYS3(SYS_mincore, from + i * RS_PAGE, n * RS_PAGE, here) == 0;
		for (uint32_t k = 0; k < n; k++) {
			uintptr_t page = from + (i + k) * RS_PAGE;
			if ((!known || here[k] & 1) && !is_zero((const uint64_t *)page))
				rs_os_copy((void *)(to + (i + k) * RS_PAGE), (const void *)page, RS_PAGE);
		}
	}
}

/* Locked, one thread. */
static void make_shared(uintptr_t lo, uintptr_t hi, bool anonymous)
{
	size_t n = hi - lo;
	uintptr_t mirror = lo + rs_share.away;
	if (mirror < RS_PAGE || mirror > (1ul << SHARE_TABLE_BITS) - n || n >> SHARE_PAGE_BITS > UINT32_MAX)
		return;
	struct share_block *b = rs_share_block_new((uint32_t)(n >> SHARE_PAGE_BITS), 1);
	if (!b)
		return;
	uintptr_t alias = rs_share_address(b), seen = alias + rs_share.away;
	bool free = rs_share_mirror(mirror, n);
	if (!free || rs_share_also_at(seen, n, mirror) < 0) {
		if (free)
			RS_SYS2(SYS_munmap, mirror, n);
		rs_share_block_free(b);
		return;
	}
	rs_share_copy(mirror, lo, b->pages, anonymous);
	b->anonymous = anonymous;
	b->key = 0;
	if (rs_share_also_at(alias, n, lo) < 0) {
		/* What was there may be gone. */
		if (RS_SYS6(SYS_mmap, lo, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == (long)lo)
			rs_os_copy((void *)lo, (const void *)mirror, n);
		RS_SYS2(SYS_munmap, mirror, n);
		RS_SYS3(SYS_madvise, seen, n, MADV_REMOVE);
		rs_share_block_free(b);
		return;
	}
	b->prot = PROT_READ | PROT_WRITE;
	rs_share_put(b, lo);
	if (rs_share_tag(b, SHARE_SHARED, rs_share.key) < 0)
		rs_share_tag(b, SHARE_OPEN, 0);
}

/* Without what must stay open: the stack that handlers run on, and this one. */
static void make_but(uintptr_t lo, uintptr_t hi, bool anonymous)
{
	stack_t s = {0};
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);
	if (lo >= hi || here - lo < hi - lo)
		return;
	if (RS_SYS2(SYS_sigaltstack, NULL, &s) == 0 && !(s.ss_flags & SS_DISABLE)) {
		uintptr_t from = (uintptr_t)s.ss_sp & -RS_PAGE, to = ((uintptr_t)s.ss_sp + s.ss_size + RS_PAGE - 1) & -RS_PAGE;
		if (from < hi && to > lo) {
			if (from > lo)
				make_shared(lo, from, anonymous);
			if (to < hi)
				make_shared(to, hi, anonymous);
			return;
		}
	}
	make_shared(lo, hi, anonymous);
}

static void make_writable(uintptr_t lo, uintptr_t hi, bool anonymous)
{
	for (unsigned i = 0; i < found_count; i++) {
		uintptr_t from = lo > found[i].lo ? lo : found[i].lo, to = hi < found[i].hi ? hi : found[i].hi;
		if (from >= to)
			continue;
		uintptr_t seal = found[i].sealed_lo, end = found[i].sealed_hi;
		if (seal < to && end > from) {
			make_but(from, seal, anonymous);
			from = end;
		}
		make_but(from, to, anonymous);
	}
}

void rs_share_globals(void)
{
	RS_OPENS();
	unsigned long long adds = seen_adds;
	if (RS_LIKELY(!rs_share_on) || rs_live_threads > 1 || rs_in_vfork())
		return;
	found_count = 0;
	dl_iterate_phdr(look, &adds);
	if (adds == seen_adds || !alone())
		return;
	char *map = rs_os_map(MAP_ROOM);
	long fd = map ? RS_SYS3(SYS_open, "/proc/self/maps", 0x80000 /* O_CLOEXEC */, 0) : -1, n = 0, r;
	uint64_t mask = rs_os_no_signals();
	while (fd >= 0 && n < MAP_ROOM - 1 && (r = RS_SYS3(SYS_read, fd, map + n, MAP_ROOM - 1 - n)) > 0)
		n += r;
	rs_lock(&rs_share_lock);
	const char *p = map;
	while (fd >= 0 && *p) {
		uintptr_t lo = number(&p, 16), hi = *p == '-' ? (p++, number(&p, 16)) : 0;
		bool mine = p[0] == ' ' && p[1] == 'r' && p[2] == 'w' && p[4] == 'p';
		if (skip(&p, 4) && mine)
			make_writable(lo, hi, number(&p, 10) == 0);
		while (*p && *p++ != '\n')
			;
	}
	seen_adds = adds;
	rs_unlock(&rs_share_lock);
	rs_os_signals(mask);
	if (fd >= 0)
		RS_SYS1(SYS_close, fd);
	if (map)
		rs_os_unmap(map, MAP_ROOM);
}
