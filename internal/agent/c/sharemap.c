/* sharemap.c: watched memory that the program has elsewhere than in the region (share.h): what it maps for itself, private and anonymous, and globals (shareglobal.c).
 *
 * Where the kernel has put a mapping, pages of the region's memfd are mapped in its place, and as their mirror. So it is the kernel that says what lies where; but memory of a file that is shared differs from
 * memory that is anonymous in what calls do with it, and those are made here as they would be natively: what is discarded is zero, what is moved or grows is ours at its new place, and what ours cannot be
 * is made anonymous again.
 *
 * Ground rules: as share.c. A call that takes memory away is made under the lock, when nothing of it is judged any more and before it is forgotten: the kernel may give the place to another thread at once,
 * and that one's mapping is only known here behind the lock. */
#include "share.h"
#include <errno.h>
#include <sys/mman.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MADV_DONTNEED_LOCKED
#define MADV_DONTNEED_LOCKED 24
#endif

/* MANY: each is two mappings more, of the 65,530 that a process may have. MOST: reservations are larger, of which hardly anything is used. */
enum { RW = PROT_READ | PROT_WRITE, ANYWHERE = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, MANY = 8192 };
#define MOST (1ul << 30)
#define TOP (1ul << SHARE_TABLE_BITS)

uint32_t rs_share_left;
static uint32_t count; /* of blocks that are the program's mappings */

static uintptr_t end_of(const struct share_block *b) { return b->at + rs_share_bytes(b); }
/* In the region's own mirror, which the program cannot reach. */
static uintptr_t seen(const struct share_block *b) { return rs_share.base + ((uintptr_t)b->page << SHARE_PAGE_BITS) + rs_share.away; }
static size_t up(size_t n) { return (n + RS_PAGE - 1) & -RS_PAGE; }

long rs_share_also_at(uintptr_t from, size_t n, uintptr_t to)
{
	return RS_SYS5(SYS_mremap, from, 0, n, MREMAP_MAYMOVE | MREMAP_FIXED, to); /* an old size of 0 */
}

bool rs_share_mirror(uintptr_t at, size_t n)
{
	if (at < RS_PAGE || at >= TOP || TOP - at < n)
		return false;
	long r = RS_SYS6(SYS_mmap, at, n, PROT_NONE, ANYWHERE | MAP_FIXED_NOREPLACE, -1, 0);
	if (r > 0 && (uintptr_t)r != at) { /* before Linux 4.17 */
		RS_SYS2(SYS_munmap, r, n);
		return false;
	}
	return r > 0;
}

/* Its pages at `at`, where the program is to have them. */
static bool show(const struct share_block *b, uintptr_t at)
{
	return rs_share_also_at(seen(b), rs_share_bytes(b), at) >= 0 && RS_SYS3(SYS_madvise, at, rs_share_bytes(b), MADV_DODUMP) >= 0;
}

/* --- blocks -------------------------------------------------------------------------------------------------------------------------- */

/* What is mapped at `at`, and was never touched, becomes watched. False: it is not, and is what it was. */
static bool take(uintptr_t at, size_t n, int prot)
{
	struct rs_thread *t = rs_thread_tls;
	struct share_block *b = rs_share_on && count < MANY && n <= MOST && !rs_share_next(at, at + n) ? rs_share_block_new((uint32_t)(n >> SHARE_PAGE_BITS), 1) : NULL;
	if (!b)
		return false;
	if (!rs_share_mirror(at + rs_share.away, n)) {
		rs_share_block_free(b);
		return false;
	}
	bool shown = rs_share_also_at(seen(b), n, at + rs_share.away) >= 0 && show(b, at);
	b->key = 0;
	if (!shown || (prot != RW && RS_SYS3(SYS_mprotect, at, n, prot) < 0)) {
		RS_SYS6(SYS_mmap, at, n, prot, ANYWHERE | MAP_FIXED, -1, 0);
		RS_SYS2(SYS_munmap, at + rs_share.away, n);
		rs_share_block_free(b);
		return false;
	}
	b->mapped = b->anonymous = 1;
	b->prot = (uint8_t)prot;
	b->first = t ? t->number : 0;
	count++;
	rs_share_put(b, at);
	if (prot == RW && rs_share_tag(b, SHARE_UNOWNED, rs_share.key) < 0)
		rs_share_tag(b, SHARE_OPEN, 0);
	return true;
}

/* What lay there is the program's no longer; the kernel has been told so. */
static void forget(struct share_block *b)
{
	uintptr_t at = b->at;
	count -= b->mapped;
	rs_share_put(b, 0);
	RS_SYS2(SYS_munmap, at + rs_share.away, rs_share_bytes(b));
	/* Else they are not zero when they are had again. A sandbox that allows munmap need not allow this. */
	if (!rs_sandboxed && RS_SYS3(SYS_madvise, seen(b), rs_share_bytes(b), MADV_REMOVE) == 0)
		rs_share_block_free(b);
	else
		b->mapped = 0;
}

/* No block lies over either end. False: there is no room. */
static bool cut(uintptr_t lo, uintptr_t hi)
{
	const uintptr_t ends[] = {lo, hi};
	for (unsigned i = 0; i < 2; i++) {
		struct share_block *b = ends[i] < TOP ? rs_share_next(ends[i], ends[i] + RS_PAGE) : NULL;
		if (!b || b->at >= ends[i])
			continue;
		if (!rs_share_block_split(b, (uint32_t)((ends[i] - b->at) >> SHARE_PAGE_BITS)))
			return false;
		count += b->mapped;
	}
	return true;
}

static void each(uintptr_t lo, uintptr_t hi, void (*fn)(struct share_block *b))
{
	struct share_block *b;
	for (uintptr_t p = lo; (b = rs_share_next(p, hi));) {
		p = end_of(b);
		fn(b);
	}
}

static void open_it(struct share_block *b) { rs_share_tag(b, SHARE_OPEN, 0); }

static bool open_all(uintptr_t lo, uintptr_t hi)
{
	if (!cut(lo, hi))
		return false;
	each(lo, hi, open_it);
	return true;
}

/* Anonymous memory again. Who accesses it meanwhile faults, and waits for the lock. */
static bool make_plain(uintptr_t lo, uintptr_t hi)
{
	if (!open_all(lo, hi))
		return false;
	struct share_block *b;
	for (uintptr_t p = lo; (b = rs_share_next(p, hi));) {
		size_t n = rs_share_bytes(b);
		long r = RS_SYS6(SYS_mmap, 0, n, RW, ANYWHERE, -1, 0);
		if (r < 0)
			return false;
		p = end_of(b);
		if (rs_share_on && b->prot == RW)
			rs_share_tag(b, SHARE_UNOWNED, rs_share.key);
		rs_share_copy((uintptr_t)r, seen(b), b->pages, true);
		if ((b->prot != RW && RS_SYS3(SYS_mprotect, r, n, b->prot) < 0) || RS_SYS5(SYS_mremap, r, n, n, MREMAP_MAYMOVE | MREMAP_FIXED, b->at) < 0) {
			rs_share_tag(b, SHARE_OPEN, 0);
			RS_SYS2(SYS_munmap, r, n);
			return false;
		}
		forget(b);
	}
	return true;
}

void rs_share_maps_open(uintptr_t p, size_t n)
{
	uintptr_t lo = p & -RS_PAGE, hi = up(p + n);
	if (!rs_share_next(lo, hi))
		return;
	uint64_t mask = rs_os_no_signals();
	rs_lock(&rs_share_lock);
	cut(lo, hi); /* if it cannot be, the whole is taken */
	each(lo, hi, open_it);
	rs_unlock(&rs_share_lock);
	rs_os_signals(mask);
}

/* --- the program maps ----------------------------------------------------------------------------------------------------------------- */

/* All others are left as they are: stacks (a thread on them has them open), what is locked, had at once, or of huge pages, and what only lies in reserve. */
static bool is_ours(int prot, int flags)
{
	enum { PLAIN = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED | MAP_FIXED_NOREPLACE };
	return prot == RW && !(flags & ~PLAIN) && flags & MAP_PRIVATE && flags & MAP_ANONYMOUS;
}

/* Where the mirror lies above what it is of, and the kernel's choice as high as a mirror can be: what it has given becomes the mirror, and its place below the program's. */
static uintptr_t below(uintptr_t p, size_t n)
{
	if (p < rs_share.away || !rs_share_mirror(p - rs_share.away, n))
		return p;
	RS_SYS2(SYS_munmap, p, n);
	return p - rs_share.away;
}

void *rs_share_mapped(void *p, size_t n, int prot, int flags, const void *want)
{
	uintptr_t at = (uintptr_t)p;
	if (!rs_share_on || at > -4096ul || !is_ours(prot, flags) || n > MOST || rs_sandboxed)
		return p;
	n = up(n);
	uint64_t mask = rs_os_no_signals();
	rs_lock(&rs_share_lock);
	if ((long)rs_share.away > 0 && at + rs_share.away + n > TOP && !want && count < MANY) {
		at = below(at, n);
		if (at != (uintptr_t)p && !take(at, n, prot))
			RS_SYS3(SYS_mprotect, at, n, prot);
	} else
		take(at, n, prot);
	rs_unlock(&rs_share_lock);
	rs_os_signals(mask);
	return (void *)at;
}

/* --- calls: each under the lock; what they return is the call's result --------------------------------------------------------------------- */

static long call(const struct rs_call *c) { return RS_SYS6(c->number, c->arg[0], c->arg[1], c->arg[2], c->arg[3], c->arg[4], c->arg[5]); }

/* munmap, or another mapping in its place. */
static long replace(const struct rs_call *c, uintptr_t lo, uintptr_t hi)
{
	if (!open_all(lo, hi))
		return -ENOMEM;
	long r = call(c);
	if (r >= 0 || r < -4095)
		each(lo, hi, forget);
	return r;
}

static long protect(const struct rs_call *c, uintptr_t lo, uintptr_t hi)
{
	bool same = c->arg[2] == RW;
	struct share_block *b;
	for (uintptr_t p = lo; same && (b = rs_share_next(p, hi)); p = end_of(b))
		same = b->prot == RW;
	if (same)
		return call(c);
	if (!open_all(lo, hi))
		return -ENOMEM;
	long r = call(c);
	for (uintptr_t p = lo; r == 0 && (b = rs_share_next(p, hi)); p = end_of(b))
		b->prot = (uint8_t)(c->arg[2] & (RW | PROT_EXEC));
	return r;
}

static void discard(uintptr_t lo, uintptr_t hi)
{
	struct share_block *b;
	for (uintptr_t p = lo; (b = rs_share_next(p, hi)); p = end_of(b)) {
		uintptr_t from = b->at < lo ? lo : b->at, to = end_of(b) > hi ? hi : end_of(b);
		if (b->anonymous)
			RS_SYS3(SYS_madvise, seen(b) + (from - b->at), to - from, MADV_REMOVE);
	}
}

/* What lies between ours is for the kernel to advise. */
static long discard_lazily(uintptr_t lo, uintptr_t hi)
{
	struct share_block *b;
	long r = 0;
	for (uintptr_t p = lo; p < hi; p = b ? end_of(b) : hi) {
		b = rs_share_next(p, hi);
		uintptr_t gap = b ? b->at : hi;
		long now = gap > p ? RS_SYS3(SYS_madvise, p, gap - p, MADV_FREE) : 0;
		r = now < 0 ? now : r;
	}
	discard(lo, hi);
	return r;
}

static bool any_mapped(uintptr_t lo, uintptr_t hi)
{
	struct share_block *b;
	for (uintptr_t p = lo; (b = rs_share_next(p, hi)); p = end_of(b))
		if (b->mapped)
			return true;
	return false;
}

static long advise(const struct rs_call *c, uintptr_t lo, uintptr_t hi)
{
	long r;
	switch (c->arg[2]) {
	case MADV_DONTNEED:
	case MADV_DONTNEED_LOCKED:
		r = call(c);
		if (r == 0 || r == -ENOMEM) /* there are holes: what is there is discarded */
			discard(lo, hi);
		return r;
	case MADV_FREE:
		return discard_lazily(lo, hi);
	case MADV_REMOVE:
		return any_mapped(lo, hi) ? -EINVAL : call(c);
	case MADV_WIPEONFORK:
	case MADV_DONTFORK:
		return make_plain(lo, hi) ? call(c) : -ENOMEM;
	}
	return call(c);
}

/* --- mremap ----------------------------------------------------------------------------------------------------------------------------- */

struct move { uintptr_t old; size_t had, n; uintptr_t to; bool fixed, may, leave; };

/* The program's mappings and nothing else, of one protection, as what the kernel moves is one mapping. */
static bool is_one(uintptr_t lo, uintptr_t hi)
{
	struct share_block *b;
	uint8_t prot = 0;
	for (uintptr_t p = lo; p < hi; p = end_of(b)) {
		b = rs_share_next(p, hi);
		if (!b || b->at > p || !b->mapped || (p != lo && b->prot != prot))
			return false;
		prot = b->prot;
	}
	return true;
}

/* All of [lo, hi) at `to` as well, where the kernel has mapped something for it. */
static bool show_again(uintptr_t lo, uintptr_t hi, uintptr_t to)
{
	struct share_block *b;
	if (!rs_share_mirror(to + rs_share.away, hi - lo))
		return false;
	for (uintptr_t p = lo; (b = rs_share_next(p, hi)); p = end_of(b)) {
		uintptr_t at = to + (b->at - lo);
		bool shown = rs_share_also_at(seen(b), rs_share_bytes(b), at + rs_share.away) >= 0 && show(b, at);
		if (shown && (b->key || b->prot != RW))
			shown = (b->key ? RS_SYS4(SYS_pkey_mprotect, at, rs_share_bytes(b), b->prot, b->key) : RS_SYS3(SYS_mprotect, at, rs_share_bytes(b), b->prot)) >= 0;
		if (!shown) {
			RS_SYS2(SYS_munmap, to + rs_share.away, hi - lo);
			return false;
		}
	}
	return true;
}

static long move(const struct rs_call *c, const struct move *m)
{
	size_t keep = m->had < m->n ? m->had : m->n;
	struct share_block *b = rs_share_next(m->old, m->old + 1);
	uint8_t prot = b->prot;
	if (!cut(m->old, m->old + m->had) || !cut(m->old, m->old + keep))
		return -ENOMEM;
	long r = RS_SYS6(SYS_mmap, m->fixed ? m->to : 0, m->n, prot, ANYWHERE | (m->fixed ? MAP_FIXED : 0), -1, 0);
	if (r < 0)
		return r;
	uintptr_t to = (uintptr_t)r;
	if (m->fixed)
		each(to, to + m->n, forget);
	if (!show_again(m->old, m->old + keep, to)) {
		RS_SYS2(SYS_munmap, to, m->n);
		return make_plain(m->old, m->old + m->had) ? call(c) : -ENOMEM;
	}
	for (uintptr_t p = m->old; (b = rs_share_next(p, m->old + keep));) {
		uintptr_t was = b->at;
		size_t n = rs_share_bytes(b);
		p = end_of(b);
		rs_share_put(b, to + (was - m->old));
		RS_SYS2(SYS_munmap, was + rs_share.away, n);
		if (m->leave)
			RS_SYS6(SYS_mmap, was, n, prot, ANYWHERE | MAP_FIXED, -1, 0);
		else
			RS_SYS2(SYS_munmap, was, n);
	}
	if (keep < m->had) {
		each(m->old + keep, m->old + m->had, open_it);
		RS_SYS2(SYS_munmap, m->old + keep, m->had - keep);
		each(m->old + keep, m->old + m->had, forget);
	}
	if (m->leave)
		take(m->old, m->had, prot);
	if (keep < m->n)
		take(to + keep, m->n - keep, prot);
	return r;
}

/* What is not ours behind it is another mapping to the kernel then, which moves one at a time. */
static long grow(const struct rs_call *c, const struct move *m)
{
	uintptr_t end = m->old + m->had;
	struct share_block *b = rs_share_next(end - RS_PAGE, end);
	uint8_t prot = b->prot;
	bool last = b->at + rs_share_bytes(b) == end;
	long r = last ? RS_SYS6(SYS_mmap, end, m->n - m->had, prot, ANYWHERE | MAP_FIXED_NOREPLACE, -1, 0) : -EEXIST;
	if (r == (long)end) {
		take(end, m->n - m->had, prot);
		return (long)m->old;
	}
	if (r > 0)
		RS_SYS2(SYS_munmap, r, m->n - m->had);
	return m->may ? move(c, m) : -ENOMEM;
}

static long remap(const struct rs_call *c, const struct move *m)
{
	struct share_block *b = rs_share_next(m->old, m->old + RS_PAGE);
	uintptr_t end = m->old + m->had;
	if (!m->had && b && b->mapped)
		return -EINVAL; /* one more mapping of it: of what is private there is none */
	if (m->fixed && !open_all(m->to, m->to + m->n))
		return -ENOMEM;
	if (!m->had || !is_one(m->old, end)) {
		if (m->had && !make_plain(m->old, end))
			return -ENOMEM;
		long r = call(c);
		if (m->fixed && (r >= 0 || r < -4095))
			each(m->to, m->to + m->n, forget);
		return r;
	}
	if (m->fixed || m->leave)
		return move(c, m);
	if (m->n > m->had)
		return grow(c, m);
	if (m->n < m->had && !open_all(m->old + m->n, end))
		return -ENOMEM;
	long r = call(c);
	if (r >= 0)
		each(m->old + m->n, end, forget);
	return r;
}

/* What the kernel refuses whatever lies there is not asked for here. */
static bool is_valid(const struct rs_call *c, struct move *m)
{
	enum { KNOWN = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP };
	uint64_t flags = c->arg[3];
	*m = (struct move){c->arg[0], up(c->arg[1]), up(c->arg[2]), c->arg[4], flags & MREMAP_FIXED, flags & MREMAP_MAYMOVE, flags & MREMAP_DONTUNMAP};
	if (flags & ~(uint64_t)KNOWN || m->old % RS_PAGE || m->old >= TOP || m->had > TOP - m->old || m->had < c->arg[1] || !m->n || m->n > TOP || ((m->fixed || m->leave) && !m->may) || (m->leave && m->had != m->n))
		return false;
	return !m->fixed || (m->to % RS_PAGE == 0 && m->to < TOP && m->n <= TOP - m->to && (m->old + m->had <= m->to || m->to + m->n <= m->old));
}

/* --- which --------------------------------------------------------------------------------------------------------------------------------- */

static long under_lock(struct rs_call *c, const struct move *m, uintptr_t lo, uintptr_t hi)
{
	uint64_t mask = rs_sandboxed ? 0 : rs_os_no_signals();
	rs_lock(&rs_share_lock);
	long r = m ? remap(c, m) : c->number == SYS_mprotect ? protect(c, lo, hi) : c->number == SYS_madvise ? advise(c, lo, hi) : replace(c, lo, hi);
	rs_unlock(&rs_share_lock);
	if (!rs_sandboxed)
		rs_os_signals(mask);
	return r;
}

void rs_share_memory(struct rs_call *c, long *made)
{
	struct move m;
	uintptr_t lo = c->arg[0], hi = lo + up(c->arg[1]);
	*made = 1;
	switch (c->number) {
	case SYS_mremap:
		if (!is_valid(c, &m) || (!rs_share_next(m.old, m.old + (m.had ? m.had : 1)) && !(m.fixed && rs_share_next(m.to, m.to + m.n))))
			break;
		c->result = under_lock(c, &m, 0, 0);
		*made = 0;
		return;
	case SYS_mmap:
		if (!(c->arg[3] & MAP_FIXED) || c->arg[3] & MAP_FIXED_NOREPLACE)
			return;
		break;
	case SYS_madvise:
		if (rs_share_has(lo) && (c->arg[2] == MADV_DONTNEED || c->arg[2] == MADV_FREE))
			c->arg[2] = MADV_REMOVE; /* zeros, as of memory that is nobody else's */
		break;
	case SYS_munmap:
	case SYS_mprotect:
		break;
	case SYS_remap_file_pages:
	case SYS_mbind:
		rs_share_unwatch(lo, c->arg[1]);
		return;
	default:
		return;
	}
	/* What malloc has handed out, in the region. */
	if (c->number != SYS_madvise && rs_share_has(lo))
		rs_share_unwatch(lo, c->arg[1]);
	if (c->number == SYS_mremap || lo % RS_PAGE || hi <= lo || hi - lo < c->arg[1] || !rs_share_next(lo, hi))
		return;
	c->result = under_lock(c, NULL, lo, hi);
	*made = 0;
}

/* --- processes ---------------------------------------------------------------------------------------------------------------------------- */

static void child_one(struct share_block *b, void *arg)
{
	uintptr_t copy = *(const uintptr_t *)arg + ((uintptr_t)b->page << SHARE_PAGE_BITS);
	if (!b->at)
		return;
	size_t n = rs_share_bytes(b);
	rs_share_also_at(copy, n, b->at);
	rs_share_also_at(copy, n, b->at + rs_share.away);
	RS_SYS3(SYS_madvise, b->at + rs_share.away, n, MADV_DONTDUMP);
	if (b->prot != RW)
		RS_SYS3(SYS_mprotect, b->at, n, b->prot);
	b->key = 0;
	b->state = SHARE_OPEN;
	rs_share_put(b, b->at);
}

void rs_share_maps_child(uintptr_t copy) { rs_share_each(child_one, &copy); }
