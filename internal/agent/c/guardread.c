/* guardread.c: files that are read in an epoch, what becomes of them while it lasts, and how they are read again: guardread.h. General registers only. */
#include "guardread.h"
#include "guardhash.h"
#include "guardkept.h"
#include "guardnote.h"
#include "guardpage.h"
#include "guardundo.h"
#include "guardwatch.h"
#include "zz_guardclass.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysmacros.h>

struct rs_guard_reads *rs_guard_reads;

long rs_guard_reads_begin(void)
{
	struct rs_guard_reads *r = rs_guard_map(RS_ARENA_LOG, sizeof *r);
	if (!r)
		return -ENOMEM;
	r->epoch = r->files = 1;
	rs_guard_reads = r;
	return 0;
}

static bool is_same(struct rs_guard_name a, struct rs_guard_name b) { return a.inode == b.inode && a.device == b.device; }

static struct rs_guard_name name_of(const struct stat *st) { return (struct rs_guard_name){st->st_dev, st->st_ino}; }

/* Before each write, so not fstat: who was told a file's times makes the next write to it set them anew (since Linux 6.13), which costs more than the look. */
static bool look_up(int32_t fd, struct rs_guard_name *to, uint64_t *size)
{
	struct statx x;
	struct stat st;
	if (RS_SYS5(SYS_statx, fd, "", AT_EMPTY_PATH | (size ? 0 : AT_STATX_DONT_SYNC), STATX_INO | (size ? STATX_SIZE : 0), &x) == 0) {
		st.st_dev = makedev(x.stx_dev_major, x.stx_dev_minor);
		st.st_ino = x.stx_ino;
		st.st_size = (off_t)x.stx_size;
	} else if (RS_SYS2(SYS_fstat, fd, &st) < 0) /* a container's seccomp may refuse what is newer than it */
		return false;
	*to = name_of(&st);
	if (size)
		*size = (uint64_t)st.st_size;
	return true;
}

static bool changes(struct rs_guard_name file)
{
	for (uint32_t i = 0; i < RS_GUARD_CHANGING; i++)
		if (is_same(rs_guard_reads->changing[i], file))
			return true;
	return false;
}

static void look(int32_t fd, struct rs_guard_fd *f)
{
	struct stat st;
	struct statfs fs;
	long flags = RS_SYS2(SYS_fcntl, fd, F_GETFL);
	f->kind = RS_GUARD_FD_OTHER;
	f->file = 0;
	f->changes = false;
	f->append = flags >= 0 && flags & O_APPEND;
	if (flags >= 0 && !(flags & O_PATH) && RS_SYS2(SYS_fstat, fd, &st) == 0 && S_ISREG(st.st_mode) && RS_SYS2(SYS_fstatfs, fd, &fs) == 0)
		for (unsigned i = 0; i < sizeof rs_guard_file_systems / sizeof *rs_guard_file_systems; i++)
			if ((uint32_t)fs.f_type == rs_guard_file_systems[i])
				f->kind = (flags & O_ACCMODE) == O_RDONLY ? RS_GUARD_FD_READER : (flags & O_ACCMODE) == O_WRONLY ? RS_GUARD_FD_WRITER : RS_GUARD_FD_BOTH;
	if (f->kind > RS_GUARD_FD_OTHER)
		f->changes = changes(name_of(&st));
	for (uint32_t was = __atomic_load_n(&rs_guard_reads->looked, __ATOMIC_RELAXED); was <= (uint32_t)fd && !__atomic_compare_exchange_n(&rs_guard_reads->looked, &was, (uint32_t)fd + 1, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);)
		;
	f->epoch = flags < 0 ? 0 : rs_guard_reads->epoch; /* what is not open is looked at again */
}

struct rs_guard_fd *rs_guard_fd_of(int32_t fd)
{
	if ((uint32_t)fd >= RS_GUARD_FDS)
		return NULL;
	struct rs_guard_fd *f = &rs_guard_reads->fd[fd];
	if (f->epoch != rs_guard_reads->epoch)
		look(fd, f);
	return f;
}

void rs_guard_fd_forget(int32_t fd)
{
	if ((uint32_t)fd < RS_GUARD_FDS)
		rs_guard_reads->fd[fd].epoch = 0;
}

/* One behind the last that was looked at. */
static uint32_t end_of(uint32_t last)
{
	uint32_t looked = __atomic_load_n(&rs_guard_reads->looked, __ATOMIC_RELAXED);
	return last < looked ? last + 1 : looked;
}

void rs_guard_fd_forget_range(uint32_t first, uint32_t last)
{
	for (uint32_t fd = first, end = end_of(last); fd < end; fd++)
		rs_guard_fd_forget((int32_t)fd);
}

uint16_t rs_guard_file_of(int32_t fd)
{
	struct rs_guard_fd *f = rs_guard_fd_of(fd);
	struct stat st;
	if (!f || f->kind == RS_GUARD_FD_OTHER || f->file)
		return f && f->kind != RS_GUARD_FD_OTHER ? f->file : 0;
	uint32_t i = __atomic_load_n(&rs_guard_reads->files, __ATOMIC_RELAXED);
	if (i >= RS_GUARD_FILES || RS_SYS2(SYS_fstat, fd, &st) < 0 || (i = __atomic_fetch_add(&rs_guard_reads->files, 1, __ATOMIC_RELAXED)) >= RS_GUARD_FILES)
		return 0;
	rs_guard_reads->file[i] = (struct rs_guard_file){.name = name_of(&st), .fd = fd};
	return f->file = (uint16_t)i;
}

void rs_guard_read_to(uint16_t file, uint64_t hi)
{
	uint64_t *at = &rs_guard_reads->file[file].hi, was = __atomic_load_n(at, __ATOMIC_RELAXED);
	while (hi > was)
		if (__atomic_compare_exchange_n(at, &was, hi, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
			__atomic_fetch_add(&rs_guard_reads->reads, 1, __ATOMIC_SEQ_CST);
			break;
		}
}

/* Something of the file from `from` on was read in this epoch. */
static bool was_read(struct rs_guard_name file, uint64_t from)
{
	uint32_t n = __atomic_load_n(&rs_guard_reads->files, __ATOMIC_SEQ_CST);
	n = n < RS_GUARD_FILES ? n : RS_GUARD_FILES;
	for (uint32_t i = 1; i < n; i++)
		if (is_same(rs_guard_reads->file[i].name, file) && from < __atomic_load_n(&rs_guard_reads->file[i].hi, __ATOMIC_RELAXED))
			return true;
	return false;
}

bool rs_guard_overwrites(const struct rs_call *c, bool over, struct rs_guard_over *what)
{
	int32_t fd = -1, at = AT_FDCWD;
	const void *path = NULL;
	uint64_t from = 0, size = 0;
	struct rs_guard_name *file = &what->file;
	what->from = 0;
	if (__atomic_load_n(&rs_guard_reads->files, __ATOMIC_SEQ_CST) <= 1)
		return false;
	switch (c->number) {
	case SYS_write:
	case SYS_writev: fd = (int32_t)c->arg[0], from = UINT64_MAX; break;
	case SYS_pwrite64:
	case SYS_pwritev:
	case SYS_pwritev2: fd = (int32_t)c->arg[0], from = c->arg[3]; break;
	case SYS_ftruncate: fd = (int32_t)c->arg[0], from = c->arg[1]; break;
	case SYS_fallocate: fd = (int32_t)c->arg[0], from = c->arg[2]; break;
	case SYS_sendfile: fd = (int32_t)c->arg[0]; break;
	case SYS_ioctl: fd = (uint32_t)c->arg[1] == FICLONE || (uint32_t)c->arg[1] == FICLONERANGE ? (int32_t)c->arg[0] : -1; break;
	case SYS_splice:
	case SYS_copy_file_range: fd = (int32_t)c->arg[2]; break;
	case SYS_creat:
	case SYS_truncate: path = (const void *)c->arg[0]; break;
	case SYS_open: path = c->arg[1] & O_TRUNC ? (const void *)c->arg[0] : NULL; break;
	case SYS_openat: path = c->arg[2] & O_TRUNC ? (const void *)c->arg[1] : NULL, at = (int32_t)c->arg[0]; break;
	}
	if (path) {
		struct stat st;
		if (RS_SYS4(SYS_newfstatat, at, path, &st, 0) < 0)
			return false;
		*file = name_of(&st);
		return was_read(*file, 0);
	}
	struct rs_guard_fd *f = fd < 0 ? NULL : rs_guard_fd_of(fd);
	if (!f || f->kind == RS_GUARD_FD_OTHER)
		return false;
	/* Read by this descriptor: it is known. */
	if (f->file && !f->append)
		*file = rs_guard_reads->file[f->file].name;
	else if (!look_up(fd, file, f->append ? &size : NULL))
		return false;
	if (!was_read(*file, 0))
		return false;
	if (f->append || from == UINT64_MAX) {
		long now = f->append ? (long)size : RS_SYS3(SYS_lseek, fd, 0, SEEK_CUR);
		if (over && c->result > 0)
			now -= c->result;
		from = now < 0 ? 0 : (uint64_t)now;
	}
	what->from = from;
	return was_read(*file, from);
}

void rs_guard_overwritten(const struct rs_guard_log *t, const struct rs_call *c)
{
	struct rs_guard_over what;
	if (t->reads != RS_GUARD_UNDONE && t->reads != __atomic_load_n(&rs_guard_reads->reads, __ATOMIC_SEQ_CST) && rs_guard_overwrites(c, true, &what))
		rs_guard_lost(RS_GUARD_LOST_CALL);
}

void rs_guard_note_change(struct rs_guard_name file)
{
	if (changes(file))
		return;
	uint32_t i = __atomic_fetch_add(&rs_guard_reads->changing_at, 1, __ATOMIC_RELAXED) % RS_GUARD_CHANGING;
	rs_guard_reads->changing[i] = file;
}

/* A file that has no name any more, as those have that are made for a while: nobody can wait for its close who has not got it from us. */
static bool unnamed(int32_t fd)
{
	struct stat st;
	return RS_SYS2(SYS_fstat, fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 0;
}

bool rs_guard_keep_read(int32_t fd)
{
	struct rs_guard_fd *f = rs_guard_fd_of(fd);
	if (!f || !f->file || rs_guard_is_lost(rs_guard_world()))
		return true;
	long own = rs_guard_kept_add(fd, f->kind != RS_GUARD_FD_READER && !unnamed(fd));
	if (own < 0)
		return false;
	rs_guard_reads->file[f->file].fd = (int32_t)own;
	rs_guard_reads->file[f->file].kept = true;
	rs_guard_reads->kept++;
	return true;
}

bool rs_guard_keep_range(uint32_t first, uint32_t last)
{
	for (uint32_t fd = first, end = end_of(last); fd < end; fd++) {
		const struct rs_guard_fd *f = &rs_guard_reads->fd[fd];
		if (f->epoch == rs_guard_reads->epoch && f->file && !rs_guard_keep_read((int32_t)fd))
			return false;
	}
	return true;
}

void rs_guard_fd_append(int32_t fd, bool append)
{
	if ((uint32_t)fd < RS_GUARD_FDS)
		rs_guard_reads->fd[fd].append = append;
}

/* --- re-execution --------------------------------------------------------------------------------------------------------------------------------- */

static void wrote(void *arg, const void *p, size_t n) { rs_guard_watch_wrote(arg, p, n); }

static long on_file(const struct rs_guard_file *f, uint64_t number, uint64_t a, uint64_t b, uint64_t c)
{
	const struct rs_call call = {.number = number, .arg = {(uint64_t)f->fd, a, b, c}};
	return f->kept ? rs_guard_kept_call(&call) : RS_SYS5(number, f->fd, a, b, c, 0);
}

struct reread { const struct rs_guard_noted *e; long got; bool over; };

static void reread(void *arg, const void *p, size_t n)
{
	struct reread *g = arg;
	for (size_t done = 0; done < n && !g->over;) {
		long r = on_file(&rs_guard_reads->file[g->e->file], SYS_pread64, (uint64_t)p + done, n - done, g->e->offset + (uint64_t)g->got);
		g->over = r <= 0 && r != -EINTR;
		done += r > 0 ? (size_t)r : 0;
		g->got += r > 0 ? r : 0;
	}
}

/* A read of the recording once more. How much came: not more than then, where the file is longer now. */
static long get_again(const struct rs_call *c, const struct rs_guard_noted *e, long result)
{
	struct reread g = {.e = e};
	rs_kernel_pieces((unsigned)c->number, (const long *)c->arg, result, 0, reread, &g);
	return g.got;
}

struct put_back { struct rs_guard_name file; uint64_t at; uint32_t now; };

static void put_piece(void *arg, const void *p, size_t n)
{
	struct put_back *b = arg;
	rs_guard_undo_put(b->file, b->at, b->now, (char *)(uintptr_t)p, n);
	b->at += n;
}

bool rs_guard_read_again(const struct rs_call *c, const struct rs_guard_noted *e, long result, long *got, uint64_t *hash)
{
	const long *a = (const long *)c->arg;
	bool one = c->number == SYS_read || c->number == SYS_pread64;
	uintptr_t to = one ? c->arg[1] : 0;
	size_t room = result <= 0 ? 0 : one ? (size_t)result : 1ul << 47;
	*hash = 0;
	rs_guard_page_call(to, room);
	*got = get_again(c, e, result);
	if (*got >= 0 && result > 0 && e->pieces != rs_guard_undo_now()) { /* more of it may have been there, or less: what came is looked at below */
		struct put_back put = {rs_guard_reads->file[e->file].name, e->offset, e->pieces};
		rs_kernel_pieces((unsigned)c->number, a, result, 0, put_piece, &put);
		*got = result;
	}
	rs_guard_page_called(to, room, false);
	if (*got != result)
		return false;
	rs_kernel_pieces((unsigned)c->number, a, result, 0, rs_guard_hash_piece, hash);
	rs_kernel_pieces((unsigned)c->number, a, result, 0, wrote, (void *)c);
	return *hash == e->data;
}
