/* checkend.c: memory at the end of an epoch, kept beside the checkpoint, and compared after the re-execution. Coordinator only, the world stopped. See checkpoint.h.
 *
 * Only what was written since the checkpoint is kept: of a page that is not here the checkpoint has the content. What a re-execution writes and the recording did not, the kernel says again. */
#include "checkpoint.h"
#include "guardlog.h"
#include <errno.h>

enum { PAGES = 1 << 20, RANGES = 1 << 15, CHUNK = 1 << 10 };
struct page { uint64_t page; char *content; /* NULL: none, where the checkpoint has some */ };
static struct end {
	uint32_t pages, used, ranges;
	struct page page[PAGES];
	char *chunk[PAGES / CHUNK];
	struct rs_checkpoint_range range[RANGES];
	struct rs_range own[RS_OS_RANGES]; /* the agent's, then */
	uint32_t owns;
	/* of the comparison */
	struct rs_checkpoint_range programs[2][RANGES];
	uint32_t at, at_range, now_ranges;
	struct rs_checkpoint_range now[RANGES];
	const uint64_t *skip;
	unsigned skips;
	bool differs, map_differs;
	uint64_t where, was, is;
	char room[RS_PAGE] __attribute__((aligned(64)));
} *end;

static char *frame(uint32_t i)
{
	char **c = &end->chunk[i / CHUNK];
	if (!*c)
		*c = rs_guard_map(RS_ARENA_KEPT, (size_t)CHUNK * RS_PAGE);
	return *c ? *c + (size_t)(i % CHUNK) * RS_PAGE : NULL;
}

/* Neighbours that are alike are one: how the kernel keeps them apart depends on what was registered when. */
static long add(struct rs_checkpoint_range *list, uint32_t *n, const struct rs_checkpoint_range *r)
{
	struct rs_checkpoint_range *last = *n ? &list[*n - 1] : NULL;
	if (r->stack)
		return 0; /* grows with our frames, too */
	if (last && last->hi == r->lo && last->device == r->device && last->inode == r->inode && last->bias == r->bias && last->prot == r->prot && last->shared == r->shared) {
		last->hi = r->hi;
		return 0;
	}
	if (*n == RANGES)
		return -E2BIG;
	rs_os_copy(&list[(*n)++], r, sizeof *r);
	return 0;
}

static long add_kept(const struct rs_checkpoint_range *r) { return add(end->range, &end->ranges, r); }
static long add_now(const struct rs_checkpoint_range *r) { return add(end->now, &end->now_ranges, r); }

static long keep(uint64_t page, bool content)
{
	if (end->pages == PAGES)
		return -E2BIG;
	struct page *p = &end->page[end->pages];
	p->page = page;
	p->content = NULL;
	if (content) {
		if (!(p->content = frame(end->used)))
			return -ENOMEM;
		end->used++;
		long e = rs_checkpoint_read(p->content, page);
		if (e < 0)
			return e;
	}
	end->pages++;
	return 0;
}

static long keep_piece(const struct rs_checkpoint_piece *k)
{
	long e = 0;
	if (!k->content)
		for (uint64_t p = k->lo; e == 0 && (p = rs_checkpoint_next(p, k->hi)) < k->hi; p += RS_PAGE)
			e = keep(p, false);
	else if (k->fresh)
		for (uint64_t p = k->lo; e == 0 && p < k->hi; p += RS_PAGE)
			e = keep(p, true);
	return e;
}

long rs_checkpoint_end_begin(void)
{
	end = rs_guard_map(RS_ARENA_KEPT, sizeof *end);
	return end ? 0 : -ENOMEM;
}

long rs_checkpoint_end_keep(void)
{
	end->pages = end->used = end->ranges = 0;
	end->owns = rs_os_range_count();
	rs_os_copy(end->own, rs_os_ranges, end->owns * sizeof *end->own);
	long e = rs_checkpoint_mark();
	return e < 0 ? e : rs_checkpoint_each(add_kept, keep_piece);
}

/* Re-executions are few, and what one had to keep the next seldom needs. */
void rs_checkpoint_end_rest(void)
{
	for (uint32_t k = 1; end && k * CHUNK < end->used; k++)
		RS_SYS3(SYS_madvise, end->chunk[k], (size_t)CHUNK * RS_PAGE, 4 /* MADV_DONTNEED */);
	if (end)
		end->pages = end->used = 0;
}

/* --- the way back to the end ----------------------------------------------------------------------------------------------------------- */

static uint32_t first_from(uint64_t page)
{
	uint32_t lo = 0, hi = end->pages;
	while (lo < hi) {
		uint32_t middle = (lo + hi) / 2;
		if (end->page[middle].page < page)
			lo = middle + 1;
		else
			hi = middle;
	}
	return lo;
}

static bool content(uint64_t page, const char **p)
{
	uint32_t i = first_from(page);
	if (i == end->pages || end->page[i].page != page)
		return false;
	*p = end->page[i].content;
	return true;
}

static uint64_t next(uint64_t page, uint64_t hi)
{
	uint32_t i = first_from(page);
	return i < end->pages && end->page[i].page < hi ? end->page[i].page : hi;
}

long rs_checkpoint_end_forward(void)
{
	static const struct rs_checkpoint_kept kept = {content, next};
	return rs_checkpoint_forward(&kept);
}

/* --- the comparison ------------------------------------------------------------------------------------------------------------------- */

/* Where what does not count goes on to from a; a: it counts. */
static uint64_t skipped(uint64_t a)
{
	for (unsigned i = 0; i < end->skips; i++)
		if (a >= end->skip[2 * i] && a < end->skip[2 * i + 1])
			return end->skip[2 * i + 1];
	return a;
}

static bool same_lock(uint64_t a, const char *was, const char *is)
{
	return rs_guard_same_lock(a, *(const uint32_t *)was, *(const uint32_t *)is) || rs_guard_same_errno(a, *(const uint32_t *)was);
}

static long compare(uint64_t page, const char *was, bool unknown)
{
	static const char zero[RS_PAGE];
	long e = rs_checkpoint_read(end->room, page);
	if (e < 0)
		return e;
	if (!was)
		was = zero;
	if (!unknown && rs_os_equal(was, end->room, RS_PAGE))
		return 0;
	for (uint64_t a = page; a < page + RS_PAGE;) {
		uint64_t i = a - page, to = skipped(a);
		if (to != a)
			a = to;
		else if (!unknown && was[i] == end->room[i])
			a++;
		else if (!unknown && same_lock(a & -4ul, was + (i & -4ul), end->room + (i & -4ul)))
			a = (a & -4ul) + 4;
		else {
			end->differs = true;
			end->where = a;
			i = i > RS_PAGE - 8 ? RS_PAGE - 8 : i;
			rs_os_copy(&end->was, was + i, 8);
			rs_os_copy(&end->is, end->room + i, 8);
			return -ECANCELED;
		}
	}
	return 0;
}

static long compare_piece(const struct rs_checkpoint_piece *k)
{
	for (uint64_t p = k->lo; p < k->hi; p += RS_PAGE) {
		while (end->at < end->pages && end->page[end->at].page < p)
			end->at++;
		uint64_t kept = end->at < end->pages && end->page[end->at].page < k->hi ? end->page[end->at].page : k->hi;
		if (p != kept && !(k->content && k->fresh)) {
			/* Unchanged in both; or it had content at the checkpoint, and has none. */
			uint64_t had = k->content ? kept : rs_checkpoint_next(p, kept);
			if (had == k->hi)
				return 0;
			p = had;
		}
		bool here = p == kept;
		const char *was = here ? end->page[end->at].content : rs_checkpoint_page(p);
		/* The file's page in both, where at the checkpoint there was something else. */
		if (here && !was && k->file && !k->content)
			continue;
		/* A file's page of which nobody has what the file had: written in the re-execution alone. */
		long e = compare(p, was, !was && k->file && k->content);
		if (e < 0)
			return e;
	}
	return 0;
}

/* The parts of n ranges that are not the agent's. What the agent maps when it needs it, a re-execution may do at another time, and the kernel puts it beside what the program has. */
static long without(struct rs_checkpoint_range *to, const struct rs_checkpoint_range *from, uint32_t n, const struct rs_range *own, uint32_t owns)
{
	uint32_t m = 0;
	for (uint32_t i = 0; i < n; i++) {
		const struct rs_checkpoint_range *r = &from[i];
		for (uintptr_t at = r->lo, to_here; at < r->hi; at = to_here) {
			bool ours = false;
			to_here = r->hi;
			for (uint32_t k = 0; k < owns && !r->inode; k++)
				if (own[k].lo <= at && at < own[k].hi) {
					ours = true;
					to_here = own[k].hi < r->hi ? own[k].hi : r->hi;
					break;
				} else if (at < own[k].lo && own[k].lo < to_here)
					to_here = own[k].lo;
			if (ours)
				continue;
			if (m == RANGES)
				return -E2BIG;
			rs_os_copy(&to[m], r, sizeof *r);
			to[m].lo = at;
			to[m++].hi = to_here;
		}
	}
	return m;
}

long rs_checkpoint_end_same(const uint64_t *skip, unsigned n, uint64_t *at, uint64_t *was, uint64_t *is)
{
	end->at = end->now_ranges = 0;
	end->differs = false;
	end->skip = skip;
	end->skips = n;
	long e = rs_checkpoint_each(add_now, compare_piece);
	*at = end->where, *was = end->was, *is = end->is;
	if (e < 0)
		return end->differs ? 1 : e;
	long before = without(end->programs[0], end->range, end->ranges, end->own, end->owns), now = without(end->programs[1], end->now, end->now_ranges, rs_os_ranges, rs_os_range_count());
	if (before < 0 || now < 0)
		return -E2BIG;
	for (long i = 0; i < before || i < now; i++) {
		const struct rs_checkpoint_range *a = &end->programs[0][i], *b = &end->programs[1][i];
		if (i < before && i < now && a->lo == b->lo && a->hi == b->hi && a->inode == b->inode && a->bias == b->bias && a->prot == b->prot && a->shared == b->shared)
			continue;
		*at = i < before ? a->lo : b->lo;
		*was = i < before ? a->hi : 0;
		*is = i >= now ? 0 : i < before && a->hi == b->hi ? b->lo : b->hi;
		return 2;
	}
	return 0;
}
