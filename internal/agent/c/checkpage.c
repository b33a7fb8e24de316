/* checkpage.c: which pages of the program have content, and which were written since the checkpoint. See checkpoint.h, and guard.h for the ground rules.
 *
 * The kernel says: all private ranges are registered with userfaultfd, WP_ASYNC, and the scan that finds the written pages write-protects them again
 * (PAGEMAP_SCAN, Linux 6.7). A mapping made in the epoch is not registered, and all its pages count as written: right, only slower. Without either, every page counts as written. */
#include "checkpoint_core.h"
#include "checkframe.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>

enum { UFFD_WP_UNPOPULATED = 1 << 13, UFFD_WP_ASYNC = 1 << 15 };

static long walk_scan(const struct range *r, bool protect, long (*f)(const struct range *, uint64_t, uint64_t, unsigned))
{
	uint64_t at = r->lo, done = at;
	while (at < r->hi) {
		struct scan s = {.size = sizeof s, .flags = protect && r->registered ? SCAN_WP : 0, .start = at, .end = r->hi, .vec = (uint64_t)rs_checkpoint_state->region, .vec_len = REGIONS,
			.anyof = PRESENT | SWAPPED, .returned = WRITTEN | FILED | PRESENT | SWAPPED | ZERO_PAGE};
		long n = RS_SYS3(SYS_ioctl, rs_checkpoint_state->pagemap, SCAN_IOCTL, &s);
		if (n < 0)
			return n;
		for (long i = 0; i < n; i++) {
			const struct scan_region *g = &rs_checkpoint_state->region[i];
			long e = done < g->start ? f(r, done, g->start, 0) : 0;
			if (e == 0)
				e = f(r, g->start, g->end, kind_of(r, g->categories));
			if (e < 0)
				return e;
			done = g->end;
		}
		/* What the kernel says of where it has come to is where its buffer of 512 regions was full last (do_pagemap_scan, Linux 6.7 to 6.18): what is behind that was told as well, and must not be told twice. */
		uint64_t to = s.walk_end > done ? s.walk_end : done;
		if (to <= at)
			break;
		at = to;
	}
	return done < r->hi ? f(r, done, r->hi, 0) : 0;
}

/* By /proc/self/pagemap's words: present 63, swapped 62, a file's 61. The zero page looks like any other. */
static long walk_pagemap(const struct range *r, long (*f)(const struct range *, uint64_t, uint64_t, unsigned))
{
	uint64_t *word = (uint64_t *)rs_checkpoint_state->region, run = r->lo;
	enum { WORDS = REGIONS * sizeof(struct scan_region) / 8 };
	unsigned kind = 0;
	for (uint64_t at = r->lo; at < r->hi;) {
		uint64_t want = (r->hi - at) >> 12;
		if (want > WORDS)
			want = WORDS;
		long n = RS_SYS4(SYS_pread64, rs_checkpoint_state->pagemap, word, want * 8, at / RS_PAGE * 8);
		if (n < 8)
			return n < 0 ? n : -EIO;
		for (long i = 0; i < n / 8; i++, at += RS_PAGE) {
			unsigned k = word[i] >> 62 && !(word[i] >> 61 & 1) ? CONTENT | FRESH : 0;
			if (k == kind)
				continue;
			long e = run < at ? f(r, run, at, kind) : 0;
			if (e < 0)
				return e;
			kind = k;
			run = at;
		}
	}
	return f(r, run, r->hi, kind);
}

long rs_pages_walk(const struct range *r, bool protect, long (*f)(const struct range *, uint64_t, uint64_t, unsigned))
{
	return rs_checkpoint_state->stats.tracking & RS_CHECKPOINT_SCAN ? walk_scan(r, protect, f) : walk_pagemap(r, f);
}

long rs_pages_walk_spans(const struct range *r, long (*f)(const struct range *, uint64_t, uint64_t, unsigned))
{
	struct range piece;
	long e = 0;
	rs_os_copy(&piece, r, sizeof piece);
	for (uint64_t lo = r->lo; lo < r->hi && e >= 0; lo = piece.hi) {
		rs_checkpoint_state->open = rs_frames_marked(lo, r->hi, &piece.hi);
		piece.lo = lo;
		e = rs_pages_walk(&piece, !rs_checkpoint_state->open, f);
	}
	return e;
}

/* Is the mapping at r->lo registered? */
static bool is_watched(const struct range *r)
{
	struct scan s = {.size = sizeof s, .flags = SCAN_CHECK_WPASYNC, .start = r->lo, .end = r->lo + RS_PAGE, .vec = (uint64_t)rs_checkpoint_state->region, .vec_len = 1, .anyof = PRESENT, .returned = PRESENT};
	return rs_checkpoint_state->stats.tracking & RS_CHECKPOINT_SCAN && RS_SYS3(SYS_ioctl, rs_checkpoint_state->pagemap, SCAN_IOCTL, &s) >= 0;
}

/* mremap leaves what it has moved unregistered, and the mapping that this has become one with at its new place (mremap_userfaultfd_prep of Linux 6.18): there pages are left that say they were not written, and go on saying so
 * when they are. So whatever is not registered any more counts as written. At the first checkpoint nothing ever was: all pages say that they were written. */
void rs_pages_watch(struct range *r)
{
	if (!(rs_checkpoint_state->stats.tracking & RS_CHECKPOINT_WP))
		return;
	struct uffdio_register u = {.range = {r->lo, r->hi - r->lo}, .mode = UFFDIO_REGISTER_MODE_WP};
	bool moved = rs_checkpoint_state->watched && !is_watched(r);
	r->registered = RS_SYS3(SYS_ioctl, rs_checkpoint_state->uffd, UFFDIO_REGISTER, &u) == 0;
	struct uffdio_writeprotect written = {.range = u.range};
	if (r->registered && moved)
		RS_SYS3(SYS_ioctl, rs_checkpoint_state->uffd, UFFDIO_WRITEPROTECT, &written);
}

static int open_uffd(void)
{
	long fd = RS_SYS1(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		fd = RS_SYS1(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK | 1 /* UFFD_USER_MODE_ONLY: enough, as nobody waits for us */);
	struct uffdio_api api = {.api = UFFD_API, .features = UFFD_WP_ASYNC | UFFD_WP_UNPOPULATED};
	if (fd >= 0 && RS_SYS3(SYS_ioctl, fd, UFFDIO_API, &api) < 0) {
		RS_SYS1(SYS_close, fd);
		return -1;
	}
	return (int)fd;
}

uint32_t rs_pages_begin(bool plain)
{
	struct scan s = {.size = sizeof s, .start = (uint64_t)rs_checkpoint_state, .end = (uint64_t)rs_checkpoint_state + RS_PAGE, .vec = (uint64_t)rs_checkpoint_state->region, .vec_len = 1, .anyof = PRESENT, .returned = PRESENT};
	uint32_t tracking = 0;
	rs_checkpoint_state->uffd = -1;
	if (RS_SYS3(SYS_ioctl, rs_checkpoint_state->pagemap, SCAN_IOCTL, &s) >= 0) {
		tracking = RS_CHECKPOINT_SCAN;
		if (!plain && (rs_checkpoint_state->uffd = open_uffd()) >= 0)
			tracking |= RS_CHECKPOINT_WP;
	}
	return tracking;
}
