/* checkpoint_core.h: what checkpoint.c (keeps memory and puts it back) and checkpage.c (which pages were written) share. Coordinator only, the world stopped. */
#ifndef RS_CHECKPOINT_CORE_H
#define RS_CHECKPOINT_CORE_H
#include "checkpoint.h"
#include "checkmap.h"

/* linux/fs.h and linux/userfaultfd.h of 6.7; Debian 12's are older. */
struct scan_region { uint64_t start, end, categories; };
struct scan { uint64_t size, flags, start, end, walk_end, vec, vec_len, max_pages, inverted, mask, anyof, returned; };
#define SCAN_IOCTL _IOWR('f', 16, struct scan)
enum { SCAN_WP = 1, SCAN_CHECK_WPASYNC = 2 };
enum { WRITTEN = 1 << 1, FILED = 1 << 2, PRESENT = 1 << 3, SWAPPED = 1 << 4, ZERO_PAGE = 1 << 5 };

enum { REGIONS = 4096, MAX_LEFT = RS_THREADS_PER_REGION * 128 };
struct checkpoint_state {
	struct map kept, now, end;
	uint64_t brk, end_brk;
	const struct rs_checkpoint_kept *source;
	int task, proc, pagemap, mem, uffd;
	bool valid;
	bool session;              /* rollbacks are those of re-executions: rs_checkpoint_ways was asked */
	bool watched;              /* something has been registered */
	uint64_t span;             /* that is walked; UINT64_MAX: none */
	uint32_t dirty;            /* pages of it that were written */
	bool open;                 /* it was left open */
	bool changed;              /* a rollback wrote something to the range that is walked */
	struct rs_checkpoint_stats stats;
	struct scan_region *region;
	char *text;                /* of maps */
	size_t text_bytes;
	uint64_t left[MAX_LEFT];   /* pairs: address, bytes */
	char left_was[MAX_LEFT / 2][64];
	bool left_there[MAX_LEFT / 2];
	unsigned left_count;
	long (*each_piece)(const struct rs_checkpoint_piece *);
};
/* Here and not in static memory, which is the program's: the agent's variables go back with it. The pointer never changes. */
extern struct checkpoint_state *rs_checkpoint_state RS_HIDDEN;

enum { CONTENT = 1, FRESH = 2 /* written since the last scan that protected, or nobody knows */ };

static inline unsigned kind_of(const struct range *r, uint64_t categories)
{
	/* In a file's mapping what the kernel calls swapped may be its mark of a page that was dropped. */
	if (categories & SWAPPED)
		return CONTENT | (categories & WRITTEN || r->inode ? FRESH : 0);
	if (!(categories & PRESENT) || categories & (FILED | ZERO_PAGE))
		return 0;
	return CONTENT | (categories & WRITTEN ? FRESH : 0);
}

/* Calls f for each piece of r, in order, all of it. protect: what is found counts from now on as not written. */
long rs_pages_walk(const struct range *r, bool protect, long (*f)(const struct range *, uint64_t, uint64_t, unsigned)) RS_HIDDEN;
/* All of r, protected but where it is left open. */
long rs_pages_walk_spans(const struct range *r, long (*f)(const struct range *, uint64_t, uint64_t, unsigned)) RS_HIDDEN;
/* Whether pages of r are written is told from now on. */
void rs_pages_watch(struct range *r) RS_HIDDEN;
/* Once, with what is to be walked by: gives RS_CHECKPOINT_…. */
uint32_t rs_pages_begin(bool plain) RS_HIDDEN;
#endif
