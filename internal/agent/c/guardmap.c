/* guardmap.c: the arena, and readers of /proc. See guard.h.
 *
 * One reservation of address space for all that `guard` will ever map, so that nothing of it can lie where a rollback wants to put a mapping of the program's back. */
#include "guard.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

enum { STEP = 16 << 20 };
static struct { uintptr_t lo, hi; } arena;
static struct used { uintptr_t at, open, end; } *used; /* by part, in the arena's first page: it survives */
/* Where each part begins, in eighths of the arena: logs of as many threads as there may be take 3.4 GiB at once. bench/footprint.go knows it. */
static const uint8_t begins[RS_ARENAS + 1] = {[RS_ARENA_OWN] = 0, [RS_ARENA_LOG] = 1, [RS_ARENA_KEPT] = 5, [RS_ARENAS] = 8};

uintptr_t rs_guard_lo(void) { return arena.lo; }
uintptr_t rs_guard_hi(void) { return arena.hi; }

bool rs_guard_limited(void)
{
	enum { DATA = 2, AS = 9 };
	static const uint8_t limits[] = {DATA, AS};
	const uint64_t large = 1ull << 40; /* nobody comes to it */
	for (unsigned i = 0; i < sizeof limits; i++) {
		uint64_t limit[2] = {~0ull};
		if (RS_SYS4(SYS_prlimit64, 0, limits[i], NULL, limit) == 0 && limit[0] < large)
			return true;
	}
	return false;
}

static void begin_at(uintptr_t lo, size_t size)
{
	used = (struct used *)lo;
	for (unsigned i = 0; i < RS_ARENAS; i++)
		used[i] = (struct used){lo + size / 8 * begins[i], lo + size / 8 * begins[i] + (i == 0 ? STEP : 0), lo + size / 8 * begins[i + 1]};
	used->at += RS_PAGE;
}

static void mark(uintptr_t lo, size_t size)
{
	RS_SYS3(SYS_madvise, lo, size, MADV_DONTDUMP);
	RS_SYS3(SYS_madvise, lo, size, MADV_WIPEONFORK);
	/* Most of it is holes: each thread's log is of megabytes, of which few are written. */
	RS_SYS3(SYS_madvise, lo, size, MADV_NOHUGEPAGE);
}

/* As much as we get: `ulimit -v` and cgroups differ. A forked child finds zeros, and has that for its own: pointers that it has from its parent lead to zeros still, as what was opened stays so. */
long rs_guard_reserve(void)
{
	if (arena.lo) {
		RS_SYS3(SYS_madvise, arena.lo, arena.hi - arena.lo, MADV_DONTNEED);
		begin_at(arena.lo, arena.hi - arena.lo);
		return 0;
	}
	for (size_t size = 1ul << 38; size >= 1ul << 33; size /= 2) {
		/* Far from all modules: trampolines have to be near them. */
		long p = RS_SYS6(SYS_mmap, 0x200000000000, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (p < 0 && p > -4096)
			continue;
		mark((uintptr_t)p, size);
		long r = RS_SYS3(SYS_mprotect, p, STEP, PROT_READ | PROT_WRITE);
		if (r < 0) {
			RS_SYS2(SYS_munmap, p, size);
			return r;
		}
		arena.lo = (uintptr_t)p;
		arena.hi = arena.lo + size;
		begin_at(arena.lo, arena.hi - arena.lo);
		return 0;
	}
	return -ENOMEM;
}

void *rs_guard_map(enum rs_arena part, size_t bytes)
{
	struct used *u = &used[part];
	bytes = (bytes + RS_PAGE - 1) & -RS_PAGE;
	if (bytes > u->end - u->at)
		return NULL;
	if (u->at + bytes > u->open) {
		size_t more = (u->at + bytes - u->open + STEP - 1) & -(size_t)STEP;
		if (more > u->end - u->open)
			more = u->end - u->open;
		if (rs_config.guard & 1 && rs_guard_limited())
			return NULL;
		if (RS_SYS3(SYS_mprotect, u->open, more, PROT_READ | PROT_WRITE) < 0)
			return NULL;
		u->open += more;
	}
	void *p = (void *)u->at;
	u->at += bytes;
	return p;
}

uint64_t rs_arena_rest(struct rs_arena_use *u, const void *at, uint64_t bytes)
{
	enum { EPOCHS = 8 };
	uint64_t keep = 0;
	u->most = bytes > u->most ? bytes : u->most;
	u->there = bytes > u->there ? bytes : u->there;
	if (++u->epochs < EPOCHS)
		return u->there;
	do
		keep = rs_arena_next(keep);
	while (keep < 2 * u->most);
	if (keep < u->there) {
		uintptr_t lo = ((uintptr_t)at + keep + RS_PAGE - 1) & -RS_PAGE, hi = ((uintptr_t)at + u->there + RS_PAGE - 1) & -RS_PAGE;
		RS_SYS3(SYS_madvise, lo, hi - lo, MADV_DONTNEED);
		u->there = keep;
	}
	u->most = u->epochs = 0;
	return u->there;
}

long rs_guard_reserve_again(uintptr_t lo, size_t bytes)
{
	long p = RS_SYS6(SYS_mmap, lo, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
	if (p != (long)lo)
		return p;
	mark(lo, bytes);
	return 0;
}

/* --- /proc ------------------------------------------------------------------------------------------------------------------------------ */

long rs_guard_open(int dir, const char *name, int flags)
{
	long fd;
	do
		fd = RS_SYS4(SYS_openat, dir, name, flags | O_CLOEXEC, 0);
	while (fd == -EINTR);
	return fd;
}

long rs_guard_read(int dir, const char *name, char *to, size_t room)
{
	long fd = rs_guard_open(dir, name, O_RDONLY);
	if (fd < 0)
		return fd;
	long n = RS_SYS3(SYS_read, fd, to, room - 1);
	RS_SYS1(SYS_close, fd);
	to[n > 0 ? n : 0] = 0;
	return n;
}

char *rs_guard_digits(char *to, uint64_t n)
{
	char text[20], *p = text;
	do
		*p++ = (char)('0' + n % 10);
	while ((n /= 10) != 0);
	while (p > text)
		*to++ = *--p;
	*to = 0;
	return to;
}

long rs_guard_numbers(int dir, long (*f)(void *arg, uint32_t number), void *arg)
{
	struct entry { uint64_t inode, offset; uint16_t length; uint8_t type; char name[]; };
	char room[4096] __attribute__((aligned(8)));
	long n;
	RS_SYS3(SYS_lseek, dir, 0, 0);
	while ((n = RS_SYS3(SYS_getdents64, dir, room, sizeof room)) > 0)
		for (long i = 0; i < n; i += ((struct entry *)(room + i))->length) {
			const struct entry *e = (struct entry *)(room + i);
			uint32_t v = 0;
			const char *p = e->name;
			for (; *p >= '0' && *p <= '9'; p++)
				v = v * 10 + (uint32_t)(*p - '0');
			long r = *p || p == e->name ? 0 : f(arg, v);
			if (r != 0)
				return r;
		}
	return n;
}
