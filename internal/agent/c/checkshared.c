/* checkshared.c: memory that other processes see, while an epoch is executed again. See checkshared.h, and guard.h for the ground rules.
 *
 * No rollback may put it back, and no re-execution may write to it. So each such mapping is moved into the arena (mremap: what is mapped, and its pages, stay the same) for as long as an epoch is executed again, and in its place lies
 * memory that only this process has, with what the checkpoint found there. The re-execution sees what the process itself writes; what others wrote meanwhile it does not, and that is found as any other difference is. Of what
 * is shared nothing is compared at the end.
 *
 * What the epoch unmapped is gone, and is not mapped again: what lies in its place the re-execution unmaps. What it mapped there is none of, as such calls end an epoch.
 *
 * What is kept are the pages that are in memory at the checkpoint (mincore: to look at others would read files, or make pages in what has holes). One that only came to be there later was empty then, if it is no disk's file and nothing is swapped out; else what is there
 * when the epoch is executed again is taken for what was.
 * All is read by /proc/self/mem: a file may be shorter than its mapping. Devices are not memory, and are left alone. */
#include "checkshared.h"
#include "checkframe.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>

enum { MOST = 64 /* mappings */, CHUNK = 32 /* pages */ };
#define PAGES (RS_SHARED_MOST / RS_PAGE)
struct moved { uint64_t lo, hi, aside, inode, offset; uint32_t device; uint8_t prot; bool away, gone, empty; /* empty: where no page was */ };
static struct shared {
	int mem;
	bool unknown, swaps; /* swaps: at the checkpoint some page of the machine's was swapped out, or it cannot be told */
	uint32_t count;
	uint64_t room; /* in the arena, of RS_SHARED_MOST bytes */
	struct moved moved[MOST];
	struct file { uint64_t inode; uint32_t device; } file[MOST]; /* that are memory: they were asked for when they were first met */
	uint32_t files;
	uint8_t resident[PAGES];
	char chunk[CHUNK * RS_PAGE] __attribute__((aligned(64)));
} *shared;

long rs_shared_begin(int mem)
{
	shared = rs_guard_map(RS_ARENA_KEPT, sizeof *shared);
	if (!shared)
		return -ENOMEM;
	shared->mem = mem;
	return 0;
}

bool rs_shared_is(const struct range *r) { return r->shared && !r->special && r->prot & WRITE; }

/* --- what it is ------------------------------------------------------------------------------------------------------------------------- */

static const char *path_of(const struct map *m, const struct range *r) { return r->inode ? m->paths + r->path : "/SYSV" /* the first piece of System V's memory has inode 0 */; }

/* It is memory alone, whatever has no page is empty. */
static bool is_no_file(const char *path)
{
	static const char *const begin[] = {"/dev/zero (deleted)", "/memfd:", "/SYSV", "/dev/shm/"};
	for (unsigned i = 0; i < sizeof begin / sizeof *begin; i++)
		if (rs_map_begins(path, begin[i]))
			return true;
	return false;
}

/* Is it a file's, or nobody's but those who map it? What the kernel has no name for (of graphics, perf, io_uring) has none with two slashes. */
static bool is_memory(const struct map *m, const struct range *r)
{
	static const char *const never[] = {"/dev/", "/sys/", "/proc/"};
	const char *path = path_of(m, r);
	struct stat st;
	if (is_no_file(path))
		return true;
	for (unsigned i = 0; i < sizeof never / sizeof *never; i++)
		if (rs_map_begins(path, never[i]))
			return false;
	for (uint32_t i = 0; i < shared->files; i++)
		if (shared->file[i].device == r->device && shared->file[i].inode == r->inode)
			return true;
	const char *p = path + (*path == '/');
	while (*p && *p != '/')
		p++;
	bool is = *p == '/'; /* a file that has no name any more; or it has */
	if (RS_SYS4(SYS_newfstatat, AT_FDCWD, path, &st, 0) == 0 && st.st_ino == r->inode)
		is = S_ISREG(st.st_mode);
	if (is && shared->files < MOST)
		shared->file[shared->files++] = (struct file){r->inode, r->device};
	return is;
}

/* --- keeping ----------------------------------------------------------------------------------------------------------------------------- */

/* n pages from lo. How many were copied. */
static long keep_run(uint64_t lo, uint64_t n)
{
	long copied = 0, got = RS_SYS4(SYS_pread64, shared->mem, shared->chunk, n * RS_PAGE, lo);
	if (got != (long)(n * RS_PAGE)) {
		shared->unknown = true;
		return 0;
	}
	for (uint64_t i = 0; i < n; i++) {
		uint64_t run, page = lo + i * RS_PAGE;
		uint32_t *f = rs_frames_of(page, &run);
		if (f && *f && rs_os_equal(rs_frame(*f), shared->chunk + i * RS_PAGE, RS_PAGE))
			continue;
		char *to = rs_frame_make(page);
		if (!to)
			return -ENOMEM;
		rs_os_copy(to, shared->chunk + i * RS_PAGE, RS_PAGE);
		copied++;
	}
	return copied;
}

static long keep_range(const struct range *r)
{
	uint64_t pages = (r->hi - r->lo) / RS_PAGE, n;
	long copied = 0;
	if (RS_SYS3(SYS_mincore, r->lo, r->hi - r->lo, shared->resident) < 0) {
		shared->unknown = true;
		return 0;
	}
	for (uint64_t i = 0; i < pages; i += n) {
		bool there = shared->resident[i] & 1;
		for (n = 1; i + n < pages && (shared->resident[i + n] & 1) == there && (!there || n < CHUNK); n++)
			;
		uint64_t lo = r->lo + i * RS_PAGE;
		if (!there) {
			rs_frames_drop(lo, lo + n * RS_PAGE);
			continue;
		}
		long k = keep_run(lo, n);
		if (k < 0)
			return k;
		copied += k;
	}
	return copied;
}

long rs_shared_keep(const struct map *m)
{
	uint64_t bytes = 0, count = 0;
	long copied = 0;
	struct sysinfo machine;
	shared->unknown = false;
	shared->swaps = RS_SYS1(SYS_sysinfo, &machine) < 0 || machine.totalswap != machine.freeswap;
	for (uint32_t i = 0; i < m->count; i++)
		if (rs_shared_is(&m->range[i])) {
			bytes += m->range[i].hi - m->range[i].lo;
			shared->unknown |= ++count > MOST || bytes > RS_SHARED_MOST || !is_memory(m, &m->range[i]);
		}
	for (uint32_t i = 0; i < m->count; i++) {
		const struct range *r = &m->range[i];
		if (!rs_shared_is(r))
			continue;
		if (shared->unknown) {
			rs_frames_drop(r->lo, r->hi);
			continue;
		}
		long k = keep_range(r);
		if (k < 0)
			return k;
		copied += k;
	}
	return copied;
}

/* --- away, and home ---------------------------------------------------------------------------------------------------------------------- */

static long mremap_to(uint64_t from, uint64_t bytes, uint64_t to)
{
	long p = RS_SYS5(SYS_mremap, from, bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, to);
	return p == (long)to ? 0 : p;
}

static long stand_in(const struct moved *m)
{
	/* Shared, so that it becomes one with no neighbour. */
	long p = RS_SYS6(SYS_mmap, m->lo, m->hi - m->lo, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
	return p == (long)m->lo ? 0 : p;
}

/* As System V's memory is known by its place in the segment, which it keeps, it can be detached afterwards. */
static long exchange(struct moved *m)
{
	uint64_t bytes = m->hi - m->lo;
	long e = mremap_to(m->lo, bytes, m->aside);
	if (e < 0) {
		rs_guard_reserve_again(m->aside, bytes); /* what lay there may have been unmapped for it */
		return e;
	}
	m->away = true;
	return stand_in(m);
}

long rs_shared_home(void)
{
	long e = 0;
	for (uint32_t i = shared->count; i-- > 0 && e == 0;) {
		struct moved *m = &shared->moved[i];
		if (!m->away)
			continue;
		if ((e = mremap_to(m->aside, m->hi - m->lo, m->lo)) == 0) {
			m->away = false;
			e = rs_guard_reserve_again(m->aside, m->hi - m->lo);
		}
	}
	if (e == 0)
		shared->count = 0;
	return e;
}

static bool alike(const struct range *a, const struct range *b)
{
	return a->prot == b->prot && a->device == b->device && a->inode == b->inode && (!a->inode || a->offset - a->lo == b->offset - b->lo);
}

/* The first shared one of m in [lo,hi), or NULL. */
static const struct range *shared_in(const struct map *m, uint64_t lo, uint64_t hi)
{
	uint32_t from = 0, to = m->count;
	while (from < to) {
		uint32_t middle = (from + to) / 2;
		if (m->range[middle].hi <= lo)
			from = middle + 1;
		else
			to = middle;
	}
	for (; from < m->count && m->range[from].lo < hi; from++)
		if (rs_shared_is(&m->range[from]))
			return &m->range[from];
	return NULL;
}

/* f for each piece of what is shared in a: it is in b, too, or nothing that is shared. false: b has something else there, or f says so. */
static bool each_piece(const struct map *a, const struct map *b, bool (*f)(const struct map *, const struct range *, uint64_t lo, uint64_t hi, bool there))
{
	for (uint32_t i = 0; i < a->count; i++) {
		const struct range *r = &a->range[i];
		for (uint64_t at = r->lo, to; rs_shared_is(r) && at < r->hi; at = to) {
			const struct range *other = shared_in(b, at, r->hi);
			bool there = other && other->lo <= at;
			to = !other ? r->hi : !there ? other->lo : other->hi < r->hi ? other->hi : r->hi;
			if ((there && !alike(r, other)) || !f(a, r, at, to, there))
				return false;
		}
	}
	return true;
}

static bool is_there(const struct map *map, const struct range *r, uint64_t lo, uint64_t hi, bool there)
{
	(void)map, (void)r, (void)lo, (void)hi;
	return there;
}

static bool add(const struct map *map, const struct range *r, uint64_t lo, uint64_t hi, bool there)
{
	struct moved *m = &shared->moved[shared->count];
	uint64_t at = shared->count ? m[-1].aside + (m[-1].hi - m[-1].lo) : shared->room;
	if (shared->count == MOST || hi - lo > shared->room + RS_SHARED_MOST - at)
		return false;
	*m = (struct moved){lo, hi, at, r->inode, r->offset + (r->inode ? lo - r->lo : 0), r->device, r->prot, false, !there, !shared->swaps && is_no_file(path_of(map, r))};
	shared->count++;
	return true;
}

/* What is to be moved, of which nothing is yet. */
static bool plan(const struct map *kept, const struct map *end)
{
	shared->count = 0;
	if (!shared->room && shared_in(kept, 0, UINT64_MAX) && !(shared->room = (uint64_t)rs_guard_map(RS_ARENA_KEPT, RS_SHARED_MOST)))
		return false;
	return each_piece(end, kept, is_there) && each_piece(kept, end, add);
}

bool rs_shared_may(const struct map *kept, const struct map *end)
{
	if (shared->unknown || !plan(kept, end))
		return shared->count = 0, false;
	/* What the kernel refuses to move (memory of large pages, limits) it refuses here, where nothing has been written yet. */
	long e = 0;
	for (uint32_t i = 0; i < shared->count && e == 0; i++)
		e = shared->moved[i].gone ? 0 : exchange(&shared->moved[i]);
	long home = rs_shared_home();
	if (home < 0) {
		rs_guard_say(rs_os_pid(), "cannot put back memory that is shared; it ends here", home);
		RS_SYS2(SYS_kill, rs_os_pid(), SIGKILL);
	}
	return e == 0;
}

/* In place of a page that has no frame nothing, if it was empty; else what is there now, if it is in memory. */
static long fill(const struct moved *m)
{
	uint64_t pages = (m->hi - m->lo) / RS_PAGE;
	bool known = !m->gone && !m->empty && RS_SYS3(SYS_mincore, m->aside, m->hi - m->lo, shared->resident) == 0;
	for (uint64_t i = 0; i < pages; i++) {
		uint64_t run, page = m->lo + i * RS_PAGE;
		uint32_t *f = rs_frames_of(page, &run);
		if (f && *f)
			rs_os_copy((void *)page, rs_frame(*f), RS_PAGE);
		else if (known && shared->resident[i] & 1 && RS_SYS4(SYS_pread64, shared->mem, shared->chunk, RS_PAGE, m->aside + i * RS_PAGE) == RS_PAGE)
			rs_os_copy((void *)page, shared->chunk, RS_PAGE);
	}
	return m->prot == (READ | WRITE) ? 0 : RS_SYS3(SYS_mprotect, m->lo, m->hi - m->lo, (m->prot & READ ? PROT_READ : 0) | PROT_WRITE | (m->prot & EXEC ? PROT_EXEC : 0));
}

long rs_shared_away(const struct map *kept, const struct map *end)
{
	long e = plan(kept, end) ? 0 : -ENOMEM; /* never: rs_shared_may found one */
	for (uint32_t i = 0; i < shared->count && e == 0; i++) {
		struct moved *m = &shared->moved[i];
		e = m->gone ? stand_in(m) : exchange(m);
		if (e == 0)
			e = fill(m);
	}
	return e;
}

void rs_shared_name(struct range *r)
{
	for (uint32_t i = 0; r->shared && i < shared->count; i++) {
		const struct moved *m = &shared->moved[i];
		if (!(m->away || m->gone) || r->lo < m->lo || r->lo >= m->hi)
			continue;
		r->inode = m->inode;
		r->device = m->device;
		r->offset = m->inode ? m->offset + (r->lo - m->lo) : 0;
	}
}
