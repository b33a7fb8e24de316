/* checkpoint.c: keeps the memory of the process and puts it back. See checkpoint.h, and guard.h for the ground rules.
 *
 * What is kept is the content of pages, by address, in frames of the arena; the map of the process is kept beside, as a list of ranges. A page without content of its own (never touched, the zero page, a file's page that
 * nobody wrote to) has no frame, and goes back to that by MADV_DONTNEED. So mappings may come, go, merge and split in an epoch: a rollback compares the map of now with the kept one, piece by piece, undoes
 * the difference, and then fills in pages. Which pages were written since the checkpoint: checkpage.c. */
#include "checkpoint_core.h"
#include "checkframe.h"
#include "checkshared.h"
#include "guardthread.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct checkpoint_state *rs_checkpoint_state;

const struct rs_checkpoint_stats *rs_checkpoint_stats(void) { return &rs_checkpoint_state->stats; }

/* --- the program's pages --------------------------------------------------------------------------------------------------------- */

static long page_in(const struct range *r, void *to, uint64_t page)
{
	if (r->prot & READ) {
		rs_os_copy(to, (const void *)page, RS_PAGE);
		return 0;
	}
	long n = RS_SYS4(SYS_pread64, rs_checkpoint_state->mem, to, RS_PAGE, page);
	return n == RS_PAGE ? 0 : n < 0 ? n : -EFAULT;
}

/* The mapping has the protection that it had at the checkpoint. */
static long page_out(const struct range *r, uint64_t page, const void *from)
{
	if (r->prot & WRITE) {
		rs_os_copy((void *)page, from, RS_PAGE);
		return 0;
	}
	long n = RS_SYS4(SYS_pwrite64, rs_checkpoint_state->mem, from, RS_PAGE, page);
	return n == RS_PAGE ? 0 : n < 0 ? n : -EFAULT;
}

static long drop_pages(const struct range *r, uint64_t lo, uint64_t hi)
{
	static const char zero[RS_PAGE];
	rs_checkpoint_state->stats.dropped += (hi - lo) >> 12;
	if (RS_SYS3(SYS_madvise, lo, hi - lo, MADV_DONTNEED) == 0)
		return 0;
	/* Locked memory: it has content and keeps it, but zeros. */
	if (r->inode)
		return 0;
	for (uint64_t p = lo; p < hi; p += RS_PAGE) {
		long e = page_out(r, p, zero);
		if (e < 0)
			return e;
	}
	return 0;
}

static bool same_page(const uint64_t *a, const uint64_t *b)
{
	for (unsigned i = 0; i < RS_PAGE / 8; i += 8)
		if ((a[i] ^ b[i]) | (a[i + 1] ^ b[i + 1]) | (a[i + 2] ^ b[i + 2]) | (a[i + 3] ^ b[i + 3]) | (a[i + 4] ^ b[i + 4]) | (a[i + 5] ^ b[i + 5]) | (a[i + 6] ^ b[i + 6]) | (a[i + 7] ^ b[i + 7]))
			return false;
	return true;
}

/* A span of which an eighth was written in the last epoch is left open: what was written is not write-protected again, since a fault costs more than to compare some pages with what is kept (in virtual machines as much as 40). */
enum { MANY = 64 / 8 };

static void judge(void)
{
	if (rs_checkpoint_state->span != UINT64_MAX)
		rs_frames_mark(rs_checkpoint_state->span * RS_SPAN, rs_checkpoint_state->dirty >= MANY);
	rs_checkpoint_state->span = UINT64_MAX;
	rs_checkpoint_state->dirty = 0;
}

static long keep_pages(const struct range *r, uint64_t lo, uint64_t hi)
{
	for (uint64_t p = lo; p < hi; p += RS_PAGE) {
		if (p / RS_SPAN != rs_checkpoint_state->span) {
			judge();
			rs_checkpoint_state->span = p / RS_SPAN;
		}
		uint64_t run;
		uint32_t *f = rs_checkpoint_state->open && r->prot & READ ? rs_frames_of(p, &run) : NULL;
		if (f && *f && same_page((const uint64_t *)rs_frame(*f), (const uint64_t *)p))
			continue;
		char *to = rs_frame_make(p);
		long e = to ? page_in(r, to, p) : -ENOMEM;
		if (e < 0)
			return e;
		rs_checkpoint_state->dirty++;
		rs_checkpoint_state->stats.copied++;
	}
	return 0;
}

/* The pages of [lo,hi) that have frames get their content; the others, if they have any now (content), lose it. */
static long put_pages(const struct range *r, uint64_t lo, uint64_t hi, bool content)
{
	uint64_t run, from = lo; /* [from,p) is to be dropped */
	long e = 0;
	for (uint64_t p = lo; p < hi; p += run << 12) {
		uint32_t *f = rs_frames_of(p, &run);
		if (run > (hi - p) >> 12)
			run = (hi - p) >> 12;
		for (uint64_t i = 0; f && i < run; i++) {
			uint64_t page = p + (i << 12);
			if (!f[i])
				continue;
			if (content && from < page && (e = drop_pages(r, from, page)) < 0)
				return e;
			from = page + RS_PAGE;
			if ((e = page_out(r, page, rs_frame(f[i]))) < 0)
				return e;
			rs_checkpoint_state->stats.copied++;
		}
	}
	return content && from < hi ? drop_pages(r, from, hi) : 0;
}

static long keep_piece(const struct range *r, uint64_t lo, uint64_t hi, unsigned kind)
{
	if (!(kind & CONTENT)) {
		rs_frames_drop(lo, hi);
		return 0;
	}
	return kind & FRESH ? keep_pages(r, lo, hi) : 0;
}

static long put_piece(const struct range *r, uint64_t lo, uint64_t hi, unsigned kind)
{
	if (kind == CONTENT)
		return 0;
	uint64_t before = rs_checkpoint_state->stats.copied + rs_checkpoint_state->stats.dropped;
	long e = put_pages(r, lo, hi, kind & CONTENT);
	rs_checkpoint_state->changed |= rs_checkpoint_state->stats.copied + rs_checkpoint_state->stats.dropped != before;
	return e;
}

static long no_piece(const struct range *r, uint64_t lo, uint64_t hi, unsigned kind)
{
	(void)r, (void)lo, (void)hi, (void)kind;
	return 0;
}

/* --- keeping ----------------------------------------------------------------------------------------------------------------------------- */

/* Text is not the program's memory: what patches change in it is ours. */
static bool ours_to_keep(const struct range *r) { return !r->shared && !r->special && (r->prot & WRITE || !(r->prot & EXEC)); }

static void watch_all(struct map *m)
{
	for (uint32_t i = 0; i < m->count; i++)
		if (ours_to_keep(&m->range[i]))
			rs_pages_watch(&m->range[i]);
}

static bool has_frames(const struct range *r) { return ours_to_keep(r) || rs_shared_is(r); }

/* Frames of what is not mapped any more, or not to be kept. */
static void drop_unmapped(const struct map *before, const struct map *m)
{
	uint32_t j = 0;
	for (uint32_t i = 0; i < before->count; i++) {
		const struct range *b = &before->range[i];
		uint64_t at = b->lo;
		if (!has_frames(b))
			continue;
		while (j > 0 && m->range[j - 1].hi > at)
			j--;
		for (; j < m->count && m->range[j].lo < b->hi; j++) {
			const struct range *r = &m->range[j];
			if (r->hi <= at || !has_frames(r))
				continue;
			if (at < r->lo)
				rs_frames_drop(at, r->lo);
			at = r->hi;
		}
		if (at < b->hi)
			rs_frames_drop(at, b->hi);
	}
}

/* Of most ranges, of which a program with a hundred libraries has a thousand, there is little or nothing to keep, and to ask takes longer than to look. So one scan walks many, with what lies between them: where it protects, the
 * kernel passes over what is not registered. */

/* None of it is left open. */
static bool closed_range(const struct range *r)
{
	uint64_t hi;
	return r->registered && !rs_frames_marked(r->lo, r->hi, &hi) && hi == r->hi;
}

/* The number behind that of the last range that is walked with range i, which is to be kept. Between them there may be text and what is the kernel's or ours, but nothing that the program may have registered for itself. */
static uint32_t together(uint32_t i)
{
	const struct range *range = rs_checkpoint_state->kept.range;
	uint32_t end = i;
	if (!(rs_checkpoint_state->stats.tracking & RS_CHECKPOINT_SCAN))
		return i;
	for (uint32_t j = i; j < rs_checkpoint_state->kept.count; j++) {
		const struct range *r = &range[j];
		if (j > i && range[j - 1].hi <= rs_guard_lo() && r->lo >= rs_guard_hi())
			break;
		if (ours_to_keep(r)) {
			if (!closed_range(r))
				break;
			end = j + 1;
		} else if (r->shared && !r->special)
			break;
	}
	return end;
}

/* What lies from *done up to a place is of these categories: it is kept in the ranges from *i on that are to be. */
static long keep_up_to(uint32_t *i, uint64_t *done, uint64_t to, uint64_t categories)
{
	while (*done < to) {
		const struct range *r = &rs_checkpoint_state->kept.range[*i];
		if (!ours_to_keep(r)) {
			++*i;
			continue;
		}
		if (*done < r->lo) {
			*done = to < r->lo ? to : r->lo;
			continue;
		}
		uint64_t hi = to < r->hi ? to : r->hi;
		long e = keep_piece(r, *done, hi, kind_of(r, categories));
		if (e < 0)
			return e;
		*done = hi;
		if (hi == r->hi) {
			judge();
			++*i;
		}
	}
	return 0;
}

/* Ranges from i up to end, as walk_scan does one. */
static long keep_together(uint32_t i, uint32_t end)
{
	uint64_t at = rs_checkpoint_state->kept.range[i].lo, hi = rs_checkpoint_state->kept.range[end - 1].hi, done = at;
	rs_checkpoint_state->span = UINT64_MAX;
	rs_checkpoint_state->open = false;
	while (at < hi) {
		struct scan s = {.size = sizeof s, .flags = SCAN_WP, .start = at, .end = hi, .vec = (uint64_t)rs_checkpoint_state->region, .vec_len = REGIONS,
			.anyof = PRESENT | SWAPPED, .returned = WRITTEN | FILED | PRESENT | SWAPPED | ZERO_PAGE};
		long n = RS_SYS3(SYS_ioctl, rs_checkpoint_state->pagemap, SCAN_IOCTL, &s);
		if (n < 0)
			return n;
		for (long k = 0; k < n; k++) {
			const struct scan_region *g = &rs_checkpoint_state->region[k];
			long e = keep_up_to(&i, &done, g->start, 0);
			if (e == 0)
				e = keep_up_to(&i, &done, g->end, g->categories);
			if (e < 0)
				return e;
		}
		uint64_t to = s.walk_end > done ? s.walk_end : done;
		if (to <= at)
			break;
		at = to;
	}
	return keep_up_to(&i, &done, hi, 0);
}

/* What /proc has of the process, or of us alone: once the first thread has ended the kernel says of the process that it has no memory. */
static long directory(bool own)
{
	char name[24] = "..";
	if (own)
		rs_guard_digits(name, rs_os_tid());
	return rs_guard_open(rs_checkpoint_state->task, name, O_DIRECTORY);
}

static long read_map(struct map *m)
{
	struct checkpoint_state *s = rs_checkpoint_state;
	long e = rs_map_read(m, s->proc, s->text, s->text_bytes), own = e == -ESRCH ? directory(true) : e;
	if (e != -ESRCH || own < 0)
		return e;
	RS_SYS1(SYS_close, s->proc);
	s->proc = (int)own;
	return rs_map_read(m, s->proc, s->text, s->text_bytes);
}

long rs_checkpoint_keep(void)
{
	struct rs_checkpoint_stats *s = &rs_checkpoint_state->stats;
	uint64_t begun = rs_os_now_ns();
	rs_checkpoint_state->valid = false;
	rs_checkpoint_state->left_count = 0;
	s->again = 0;
	s->copied = s->dropped = s->remapped = s->ranges = 0;
	long e = read_map(&rs_checkpoint_state->now);
	if (e < 0)
		return e;
	drop_unmapped(&rs_checkpoint_state->kept, &rs_checkpoint_state->now);
	struct map was = rs_checkpoint_state->kept;
	rs_checkpoint_state->kept = rs_checkpoint_state->now;
	rs_checkpoint_state->now = was;
	for (uint32_t i = 0; i < rs_checkpoint_state->kept.count; i++) {
		struct range *r = &rs_checkpoint_state->kept.range[i];
		if (!ours_to_keep(r))
			continue;
		s->ranges++;
		rs_pages_watch(r);
	}
	rs_checkpoint_state->watched = true;
	for (uint32_t i = 0, end; i < rs_checkpoint_state->kept.count; i = end) {
		const struct range *r = &rs_checkpoint_state->kept.range[i];
		end = i + 1;
		if (!ours_to_keep(r))
			continue;
		uint32_t last = together(i);
		if (last > end) {
			if ((e = keep_together(i, last)) < 0)
				return e;
			end = last;
			continue;
		}
		rs_checkpoint_state->span = UINT64_MAX;
		if ((e = rs_pages_walk_spans(r, keep_piece)) < 0)
			return e;
		judge();
	}
	if ((e = rs_shared_keep(&rs_checkpoint_state->kept)) < 0)
		return e;
	s->copied += (uint64_t)e;
	rs_checkpoint_state->brk = (uint64_t)RS_SYS1(SYS_brk, 0);
	rs_checkpoint_state->valid = true;
	s->pages = rs_frames_count();
	rs_frames_rest();
	rs_checkpoint_end_rest();
	s->ns = rs_os_now_ns() - begun;
	return 0;
}

/* --- back ---------------------------------------------------------------------------------------------------------------------------------- */

static int kernel_prot(const struct range *r) { return (r->prot & READ ? PROT_READ : 0) | (r->prot & WRITE ? PROT_WRITE : 0) | (r->prot & EXEC ? PROT_EXEC : 0); }

static long unmap(const struct range *r, uint64_t lo, uint64_t hi)
{
	if (r->special)
		return 0;
	rs_checkpoint_state->stats.remapped++;
	/* A stack that has grown stays, and goes back to zeros. */
	return r->stack ? RS_SYS3(SYS_madvise, lo, hi - lo, MADV_DONTNEED) : RS_SYS2(SYS_munmap, lo, hi - lo);
}

/* The file that a mapping was of, by its name. -ESTALE: another one has it now. Of the device /proc says another number than stat where file systems lie above others. */
static long open_mapped(const struct map *m, const struct range *r)
{
	struct stat st;
	long fd = RS_SYS4(SYS_openat, AT_FDCWD, m->paths + r->path, r->shared && r->prot & WRITE ? O_RDWR | O_CLOEXEC : O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0 || (RS_SYS2(SYS_fstat, fd, &st) == 0 && st.st_ino == r->inode))
		return fd;
	RS_SYS1(SYS_close, fd);
	return -ESTALE;
}

static long map(const struct map *m, const struct range *r, uint64_t lo, uint64_t hi)
{
	if (r->special)
		return 0;
	rs_checkpoint_state->stats.remapped++;
	int flags = (r->shared ? MAP_SHARED : MAP_PRIVATE) | MAP_FIXED | MAP_NORESERVE;
	long fd = -1, p;
	if (r->inode) {
		fd = open_mapped(m, r);
		if (fd < 0)
			return fd;
		p = RS_SYS6(SYS_mmap, lo, hi - lo, kernel_prot(r), flags, fd, r->offset + (lo - r->lo));
		RS_SYS1(SYS_close, fd);
	} else
		p = RS_SYS6(SYS_mmap, lo, hi - lo, kernel_prot(r), flags | MAP_ANONYMOUS | (r->stack ? MAP_GROWSDOWN : 0), -1, 0);
	return p < 0 && p > -4096 ? p : 0;
}

static bool same_memory(const struct range *a, const struct range *b)
{
	return a->shared == b->shared && a->special == b->special && a->device == b->device && a->inode == b->inode && (!a->inode || a->offset - a->lo == b->offset - b->lo);
}

/* One piece of addresses, in which each map has one range, or none (NULL). */
static long undo(const struct map *to, const struct range *kept, const struct range *now, uint64_t lo, uint64_t hi)
{
	if (kept && (!now || !same_memory(kept, now)))
		return rs_checkpoint_state->session && rs_shared_is(kept) ? 0 /* rs_checkpoint_aside does */ : map(to, kept, lo, hi);
	if (!kept)
		return now ? unmap(now, lo, hi) : 0;
	if (kept->prot == now->prot || kept->special)
		return 0;
	rs_checkpoint_state->stats.remapped++;
	return RS_SYS3(SYS_mprotect, lo, hi - lo, kernel_prot(kept));
}

/* Could undo map it? */
static long could(const struct map *to, const struct range *kept, const struct range *now, uint64_t lo, uint64_t hi)
{
	(void)lo, (void)hi;
	if (!kept || kept->special || !kept->inode || rs_shared_is(kept) || (now && same_memory(kept, now)))
		return 0;
	long fd = open_mapped(to, kept);
	if (fd >= 0)
		RS_SYS1(SYS_close, fd);
	return fd < 0 ? fd : 0;
}

/* For each piece of addresses; with undo the map of now becomes `to`. */
static long undo_all(const struct map *to, const struct map *now, long (*f)(const struct map *, const struct range *, const struct range *, uint64_t, uint64_t))
{
	const struct range *k = to->range, *n = now->range, *kept_end = k + to->count, *now_end = n + now->count;
	uint64_t at = 0;
	while (k < kept_end || n < now_end) {
		uint64_t next = UINT64_MAX;
		bool in_kept = k < kept_end && k->lo <= at, in_now = n < now_end && n->lo <= at;
		if (k < kept_end)
			next = in_kept ? k->hi : k->lo;
		if (n < now_end && (in_now ? n->hi : n->lo) < next)
			next = in_now ? n->hi : n->lo;
		long e = in_kept || in_now ? f(to, in_kept ? k : NULL, in_now ? n : NULL, at, next) : 0;
		if (e < 0)
			return e;
		at = next;
		if (k < kept_end && k->hi <= at)
			k++;
		if (n < now_end && n->hi <= at)
			n++;
	}
	return 0;
}

static void leave(bool put)
{
	for (unsigned i = 0; i < rs_checkpoint_state->left_count; i++) {
		/* A thread that is kept from ending may have no stack any more, and where it was there may be something else. */
		if (!put)
			rs_checkpoint_state->left_there[i] = !rs_guard_threads_gave_up(rs_checkpoint_state->left[2 * i]) && RS_SYS4(SYS_pread64, rs_checkpoint_state->mem, rs_checkpoint_state->left_was[i], rs_checkpoint_state->left[2 * i + 1], rs_checkpoint_state->left[2 * i]) > 0;
		else if (rs_checkpoint_state->left_there[i])
			RS_SYS4(SYS_pwrite64, rs_checkpoint_state->mem, rs_checkpoint_state->left_was[i], rs_checkpoint_state->left[2 * i + 1], rs_checkpoint_state->left[2 * i]);
	}
}

long rs_checkpoint_leave(uintptr_t p, size_t n)
{
	unsigned i = rs_checkpoint_state->left_count;
	if (i == MAX_LEFT / 2 || n > sizeof rs_checkpoint_state->left_was[0])
		return -E2BIG;
	rs_checkpoint_state->left[2 * i] = p;
	rs_checkpoint_state->left[2 * i + 1] = n;
	rs_checkpoint_state->stats.again = rs_checkpoint_state->left_count = i + 1;
	return 0;
}

unsigned rs_checkpoint_left(const uint64_t **pieces)
{
	*pieces = rs_checkpoint_state->left;
	return rs_checkpoint_state->left_count;
}

long rs_checkpoint_back(void)
{
	struct rs_checkpoint_stats *s = &rs_checkpoint_state->stats;
	uint64_t begun = rs_os_now_ns();
	if (!rs_checkpoint_state->valid)
		return -ENOENT;
	s->copied = s->dropped = s->remapped = 0;
	long e = rs_shared_home();
	if (e < 0)
		return e;
	if ((uint64_t)RS_SYS1(SYS_brk, 0) != rs_checkpoint_state->brk && (uint64_t)RS_SYS1(SYS_brk, rs_checkpoint_state->brk) != rs_checkpoint_state->brk)
		return -ENOMEM;
	leave(false);
	if ((e = read_map(&rs_checkpoint_state->now)) < 0)
		return e;
	watch_all(&rs_checkpoint_state->now);
	if ((e = undo_all(&rs_checkpoint_state->kept, &rs_checkpoint_state->now, undo)) < 0)
		return e;
	for (uint32_t i = 0; i < rs_checkpoint_state->kept.count; i++) {
		struct range *r = &rs_checkpoint_state->kept.range[i];
		if (!ours_to_keep(r))
			continue;
		rs_checkpoint_state->changed = false;
		rs_pages_watch(r);
		if ((e = rs_pages_walk(r, false, put_piece)) < 0)
			return e;
		if (rs_checkpoint_state->changed && r->registered && (e = rs_pages_walk_spans(r, no_piece)) < 0)
			return e;
	}
	leave(true);
	s->ns = rs_os_now_ns() - begun;
	return 0;
}

long rs_checkpoint_aside(void) { return rs_shared_away(&rs_checkpoint_state->kept, &rs_checkpoint_state->end); }

/* --- forward: to where the recording ended ------------------------------------------------------------------------------------------------- */

long rs_checkpoint_mark(void)
{
	rs_checkpoint_state->end_brk = (uint64_t)RS_SYS1(SYS_brk, 0);
	return read_map(&rs_checkpoint_state->end);
}

enum rs_checkpoint_way rs_checkpoint_ways(void)
{
	rs_checkpoint_state->session = true;
	if (!rs_shared_may(&rs_checkpoint_state->kept, &rs_checkpoint_state->end))
		return RS_CHECKPOINT_SHARED;
	return undo_all(&rs_checkpoint_state->kept, &rs_checkpoint_state->end, could) < 0 || undo_all(&rs_checkpoint_state->end, &rs_checkpoint_state->kept, could) < 0 ? RS_CHECKPOINT_NO_FILE : RS_CHECKPOINT_BOTH_WAYS;
}

/* What was kept goes in; all else is as at the checkpoint. */
static long forward_piece(const struct range *r, uint64_t lo, uint64_t hi, unsigned kind)
{
	uint64_t from = lo, to = lo; /* is to be dropped */
	long e = 0;
	for (uint64_t p = lo; p < hi && e == 0; p += RS_PAGE) {
		const char *content;
		if (!(kind & FRESH)) {
			uint64_t next = rs_checkpoint_state->source->next(p, hi), had = kind & CONTENT ? hi : rs_checkpoint_next(p, hi);
			p = next < had ? next : had;
			if (p == hi)
				break;
		}
		if (!rs_checkpoint_state->source->content(p, &content) && !(content = rs_checkpoint_page(p)) && !(kind & CONTENT))
			continue;
		if (content) {
			e = page_out(r, p, content);
			continue;
		}
		if (to != p) {
			e = from < to ? drop_pages(r, from, to) : 0;
			from = p;
		}
		to = p + RS_PAGE;
	}
	return e == 0 && from < to ? drop_pages(r, from, to) : e;
}

long rs_checkpoint_forward(const struct rs_checkpoint_kept *kept)
{
	rs_checkpoint_state->source = kept;
	long e = rs_shared_home();
	if (e < 0)
		return e;
	if ((uint64_t)RS_SYS1(SYS_brk, 0) != rs_checkpoint_state->end_brk && (uint64_t)RS_SYS1(SYS_brk, rs_checkpoint_state->end_brk) != rs_checkpoint_state->end_brk)
		return -ENOMEM;
	leave(false);
	if ((e = read_map(&rs_checkpoint_state->now)) < 0)
		return e;
	watch_all(&rs_checkpoint_state->now);
	if ((e = undo_all(&rs_checkpoint_state->end, &rs_checkpoint_state->now, undo)) < 0)
		return e;
	for (uint32_t i = 0; i < rs_checkpoint_state->end.count; i++)
		if (ours_to_keep(&rs_checkpoint_state->end.range[i]) && (e = rs_pages_walk(&rs_checkpoint_state->end.range[i], false, forward_piece)) < 0)
			return e;
	leave(true);
	return 0;
}

/* --- looked at by others --------------------------------------------------------------------------------------------------------------------- */

static long each_piece(const struct range *r, uint64_t lo, uint64_t hi, unsigned kind)
{
	return lo < hi ? rs_checkpoint_state->each_piece(&(struct rs_checkpoint_piece){lo, hi, kind & CONTENT, kind & FRESH, r->inode}) : 0;
}

long rs_checkpoint_each(long (*range)(const struct rs_checkpoint_range *), long (*piece)(const struct rs_checkpoint_piece *))
{
	long e = read_map(&rs_checkpoint_state->now);
	rs_checkpoint_state->each_piece = piece;
	if (e >= 0)
		watch_all(&rs_checkpoint_state->now);
	for (uint32_t i = 0; e >= 0 && i < rs_checkpoint_state->now.count; i++) {
		struct range *r = &rs_checkpoint_state->now.range[i];
		rs_shared_name(r);
		struct rs_checkpoint_range seen = {r->lo, r->hi, r->device, r->inode, r->inode ? r->offset - r->lo : 0, r->prot, r->shared, r->stack, ours_to_keep(r)};
		if (!r->special && (e = range(&seen)) >= 0 && seen.kept)
			e = rs_pages_walk(r, false, each_piece);
	}
	return e < 0 ? e : 0;
}

const void *rs_checkpoint_page(uint64_t page)
{
	uint64_t run;
	uint32_t *f = rs_frames_of(page, &run);
	return f && *f ? rs_frame(*f) : NULL;
}

uint64_t rs_checkpoint_next(uint64_t page, uint64_t hi)
{
	uint64_t run;
	for (; page < hi; page += run << 12) {
		uint32_t *f = rs_frames_of(page, &run);
		for (uint64_t i = 0; f && i < run && page + (i << 12) < hi; i++)
			if (f[i])
				return page + (i << 12);
	}
	return hi;
}

long rs_checkpoint_read(void *to, uint64_t page)
{
	long n = RS_SYS4(SYS_pread64, rs_checkpoint_state->mem, to, RS_PAGE, page);
	return n == RS_PAGE ? 0 : n < 0 ? n : -EFAULT;
}

long rs_checkpoint_write(uint64_t at, const void *from, size_t n)
{
	long r = RS_SYS4(SYS_pwrite64, rs_checkpoint_state->mem, from, n, at);
	return r == (long)n ? 0 : r < 0 ? r : -EFAULT;
}

uint64_t rs_checkpoint_mapping(uint64_t p)
{
	for (uint32_t i = 0; i < rs_checkpoint_state->now.count; i++)
		if (p >= rs_checkpoint_state->now.range[i].lo && p < rs_checkpoint_state->now.range[i].hi)
			return rs_checkpoint_state->now.range[i].lo;
	return p;
}

int rs_checkpoint_protection(uint64_t p)
{
	for (uint32_t i = 0; i < rs_checkpoint_state->kept.count; i++) {
		const struct range *r = &rs_checkpoint_state->kept.range[i];
		if (p >= r->lo && p < r->hi)
			return r->shared || r->special ? -1 : kernel_prot(r);
	}
	return -1;
}

/* --- once ------------------------------------------------------------------------------------------------------------------------------------- */

long rs_checkpoint_begin(int task, bool plain)
{
	rs_checkpoint_state = rs_guard_map(RS_ARENA_KEPT, sizeof *rs_checkpoint_state);
	if (!rs_checkpoint_state || rs_frames_begin() < 0)
		return -ENOMEM;
	rs_checkpoint_state->task = task;
	char text[8];
	long proc = directory(false);
	if (proc >= 0 && (rs_guard_read((int)proc, "statm", text, sizeof text) <= 0 || text[0] == '0')) {
		RS_SYS1(SYS_close, proc);
		proc = directory(true);
	}
	if (proc < 0)
		return proc;
	rs_checkpoint_state->proc = (int)proc;
	rs_checkpoint_state->text_bytes = 16 << 20;
	rs_checkpoint_state->text = rs_guard_map(RS_ARENA_KEPT, rs_checkpoint_state->text_bytes);
	rs_checkpoint_state->region = rs_guard_map(RS_ARENA_KEPT, REGIONS * sizeof *rs_checkpoint_state->region);
	struct map *maps[] = {&rs_checkpoint_state->kept, &rs_checkpoint_state->now, &rs_checkpoint_state->end};
	for (unsigned i = 0; i < sizeof maps / sizeof *maps; i++) {
		struct map *m = maps[i];
		m->range = rs_guard_map(RS_ARENA_KEPT, MAX_RANGES * sizeof *m->range);
		m->paths = rs_guard_map(RS_ARENA_KEPT, PATHS);
		if (!m->range || !m->paths)
			return -ENOMEM;
	}
	long pagemap = rs_guard_open(proc, "pagemap", 0), mem = rs_guard_open(proc, "mem", O_RDWR);
	if (!rs_checkpoint_state->text || !rs_checkpoint_state->region)
		return -ENOMEM;
	if (pagemap < 0 || mem < 0)
		return pagemap < 0 ? pagemap : mem;
	rs_checkpoint_state->pagemap = (int)pagemap;
	rs_checkpoint_state->mem = (int)mem;
	if (rs_shared_begin(rs_checkpoint_state->mem) < 0)
		return -ENOMEM;
	rs_checkpoint_state->stats.tracking = rs_pages_begin(plain);
	return 0;
}
