/* guardundo.c: what files held before they were written over, for reads that are made again. See guardundo.h.
 *
 * Reads of files are not recorded: a re-execution makes them again. A database reads a page, changes it and writes it back, so what it read is gone. Of what an epoch overwrites and has read the old content is kept, by pages of the file, each piece with the number of the call
 * that overwrote it. A read that was made behind so many such calls gets what the file has now, with all that later ones took away put back, the oldest last.
 *
 * What two threads do to one place of a file at once has no order here, as natively: then a read may come out otherwise, which its hash tells.
 *
 * Ground rules: calls.h's of rs_call_before. All is in the arena, and stays as it is in a re-execution. */
#include "guardundo.h"
#include "guardlog.h"
#include "called.h"
#include <errno.h>
#include <sys/uio.h>

enum { BYTES = 32 << 20, RECORDS = 1 << 15, BUCKETS = 1 << 13, ONE_CALL = 4 << 20, VECTORS = 64 };

struct piece { struct rs_guard_name file; uint64_t page; uint32_t next, call, data; uint16_t from, bytes; };
static struct undo {
	uint32_t calls, pieces;    /* pieces from 1 on */
	uint32_t bytes;
	struct rs_arena_use use;   /* of data */
	uint32_t first[BUCKETS];   /* of each page's pieces: the newest */
	struct piece piece[RECORDS];
	char data[BYTES];
} *undo;

long rs_guard_undo_begin(void)
{
	undo = rs_guard_map(RS_ARENA_LOG, sizeof *undo);
	if (undo)
		undo->pieces = 1;
	return undo ? 0 : -ENOMEM;
}

void rs_guard_undo_epoch(void)
{
	if (undo->pieces > 1)
		rs_os_clear(undo->first, sizeof undo->first);
	rs_arena_rest(&undo->use, undo->data, undo->bytes);
	undo->calls = undo->bytes = 0;
	undo->pieces = 1;
}

uint32_t rs_guard_undo_now(void) { return __atomic_load_n(&undo->calls, __ATOMIC_SEQ_CST); }

static uint32_t *bucket(struct rs_guard_name file, uint64_t page)
{
	uint64_t h = (file.inode * 0x9e3779b97f4a7c15ull ^ file.device ^ page) * 0xff51afd7ed558ccdull;
	return &undo->first[h >> 51];
}
_Static_assert(BUCKETS == 1 << (64 - 51), "the hash's upper bits choose a bucket");

/* How many bytes it may write from over->from on. */
static uint64_t length(const struct rs_call *c, const struct rs_guard_over *over)
{
	struct stat st;
	struct iovec v;
	uint64_t n = 0;
	switch (c->number) {
	case SYS_write:
	case SYS_pwrite64: return c->arg[2];
	case SYS_writev:
	case SYS_pwritev:
	case SYS_pwritev2:
		if (c->arg[2] > VECTORS)
			return UINT64_MAX;
		for (uint64_t i = 0; i < c->arg[2]; i++) {
			if (rs_kernel_peek(&v, c->arg[1] + i * sizeof v, sizeof v) != sizeof v || v.iov_len > ONE_CALL)
				return UINT64_MAX;
			n += v.iov_len;
		}
		return n;
	case SYS_ftruncate:
		if (RS_SYS2(SYS_fstat, (int32_t)c->arg[0], &st) < 0)
			return UINT64_MAX;
		return (uint64_t)st.st_size > over->from ? (uint64_t)st.st_size - over->from : 0;
	}
	return UINT64_MAX;
}

/* A descriptor by which the file can be read; negative: none. What is mapped is not read again, and must stay. */
static int32_t readable(const struct rs_call *c, const struct rs_guard_over *over)
{
	const struct rs_guard_fd *f = rs_guard_fd_of((int32_t)c->arg[0]);
	int32_t fd = f && f->kind == RS_GUARD_FD_BOTH ? (int32_t)c->arg[0] : -1;
	uint32_t n = __atomic_load_n(&rs_guard_reads->files, __ATOMIC_SEQ_CST);
	for (uint32_t i = 1; i < n && i < RS_GUARD_FILES; i++) {
		const struct rs_guard_file *r = &rs_guard_reads->file[i];
		if (r->name.inode != over->file.inode || r->name.device != over->file.device)
			continue;
		if (r->mapped)
			return -1;
		fd = fd < 0 && !r->kept ? r->fd : fd;
	}
	return fd;
}

/* Takes *n of what there is at *at up to `most`; false: there is no room. */
static bool take(uint32_t *from, uint32_t n, uint32_t most, uint32_t *at)
{
	*at = __atomic_fetch_add(from, n, __ATOMIC_RELAXED);
	if (*at <= most && n <= most - *at)
		return true;
	__atomic_fetch_sub(from, n, __ATOMIC_RELAXED);
	return false;
}

long rs_guard_undo_keep(const struct rs_call *c, const struct rs_guard_over *over)
{
	uint64_t n = length(c, over), from = over->from;
	int32_t fd = n > ONE_CALL ? -1 : readable(c, over);
	if (fd < 0 || from + n < from)
		return -EINVAL;
	uint32_t at, i;
	if (!take(&undo->bytes, (uint32_t)n, BYTES, &at))
		return -ENOSPC;
	uint64_t got = 0;
	while (got < n) { /* the rest is behind the file's end */
		long r = RS_SYS4(SYS_pread64, fd, undo->data + at + got, n - got, from + got);
		if (r < 0 && r != -EINTR)
			return r;
		if (r == 0)
			break;
		got += r > 0 ? (uint64_t)r : 0;
	}
	uint32_t end = at + (uint32_t)n, pages = got ? (uint32_t)((from + got - 1) / RS_PAGE - from / RS_PAGE + 1) : 0;
	__atomic_compare_exchange_n(&undo->bytes, &end, at + (uint32_t)got, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED); /* unless others have taken more since */
	if (!take(&undo->pieces, pages, RECORDS, &i))
		return -ENOSPC;
	uint32_t call = __atomic_add_fetch(&undo->calls, 1, __ATOMIC_SEQ_CST);
	for (uint64_t done = 0; done < got; i++) {
		uint64_t offset = from + done, bytes = RS_PAGE - offset % RS_PAGE < got - done ? RS_PAGE - offset % RS_PAGE : got - done;
		struct piece *p = &undo->piece[i];
		*p = (struct piece){over->file, offset / RS_PAGE, 0, call, at + (uint32_t)done, (uint16_t)(offset % RS_PAGE), (uint16_t)bytes};
		uint32_t *first = bucket(p->file, p->page);
		p->next = __atomic_load_n(first, __ATOMIC_RELAXED);
		while (!__atomic_compare_exchange_n(first, &p->next, i, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
			;
		done += bytes;
	}
	return 0;
}

void rs_guard_undo_put(struct rs_guard_name file, uint64_t offset, uint32_t now, char *to, size_t n)
{
	if (now == undo->calls)
		return;
	for (size_t done = 0, bytes; done < n; done += bytes) {
		uint64_t at = offset + done, lo = at % RS_PAGE, hi;
		bytes = RS_PAGE - lo < n - done ? RS_PAGE - lo : n - done;
		hi = lo + bytes;
		const struct piece *p;
		for (uint32_t i = *bucket(file, at / RS_PAGE); i; i = p->next) {
			p = &undo->piece[i];
			if (p->page != at / RS_PAGE || p->file.inode != file.inode || p->file.device != file.device)
				continue;
			if (p->call <= now)
				break;
			uint64_t a = p->from > lo ? p->from : lo, b = p->from + p->bytes < hi ? (uint64_t)(p->from + p->bytes) : hi;
			if (a < b)
				rs_os_copy(to + done + (a - lo), undo->data + p->data + (a - p->from), b - a);
		}
	}
}
