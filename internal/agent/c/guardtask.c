/* guardtask.c: what a program reads of its own threads in /proc, without those that it has not. See guardtask.h.
 *
 * In a nutshell. The coordinator, and threads that are kept until their epoch ends, are threads to the kernel. Programs look whether they have one thread alone before they fork or shut themselves in (Chromium's zygotes, by the links of /proc/self/task,
 * end themselves when they have more; python warns). So behind a call that told of them the answer is made what it would be natively: links and entries of /proc/self/task, the line of /proc/self/status, the field of /proc/self/stat. It is the kernel's
 * text that says what may be such an answer, at the cost of a comparison or two a call; that it is one, the file's own inode. What others see of the process is as it is.
 *
 * Ground rules: calls.h's of rs_call_before. Nothing is asked in a sandbox. */
#include "guardtask.h"
#include "guard.h"
#include "guardlog.h"
#include "guardlogs.h"
#include "world.h"
#include <fcntl.h>
#include <linux/stat.h>
#include <sys/sysmacros.h>

struct entry { uint64_t inode, offset; uint16_t length; uint8_t type; char name[]; };

static bool is_kept(const struct rs_guard_log *t) { return __atomic_load_n(&t->state, __ATOMIC_ACQUIRE) == RS_GUARD_KEPT; }

static bool lives(uint32_t tid) { return tid && RS_SYS3(SYS_tgkill, rs_os_pid(), tid, 0) == 0; }

/* How many threads the process has that the program has not. */
static uint64_t ours(void)
{
	uint32_t coordinator = rs_guard_coordinator();
	if (!coordinator)
		return 0;
	uint64_t n = lives(coordinator);
	for (uint32_t i = 0; i < rs_guard_world()->logs; i++)
		n += is_kept(rs_guard_log(i)) && lives(rs_guard_log(i)->tid);
	return n;
}

static bool is_ours(uint32_t tid)
{
	uint32_t coordinator = rs_guard_coordinator();
	bool is = coordinator && tid == coordinator;
	for (uint32_t i = 0; coordinator && !is && i < rs_guard_world()->logs; i++)
		is = is_kept(rs_guard_log(i)) && rs_guard_log(i)->tid == tid;
	return is;
}

static bool is(const char *path, uint64_t dev, uint64_t ino)
{
	struct stat st;
	return RS_SYS4(SYS_newfstatat, AT_FDCWD, path, &st, 0) == 0 && st.st_dev == dev && st.st_ino == ino;
}

static bool is_open(const char *path, long fd)
{
	struct stat st;
	return RS_SYS2(SYS_fstat, fd, &st) == 0 && is(path, st.st_dev, st.st_ino);
}

/* --- /proc/self/task ---------------------------------------------------------------------------------------------------------------------------------------- */

static bool may_be_tasks(uint32_t mode, uint64_t size, uint64_t links) { return mode == (S_IFDIR | 0555) && size == 0 && links > 2; }

static uint64_t links_of(uint64_t dev, uint64_t ino, uint64_t links)
{
	if (!is("/proc/self/task", dev, ino))
		return links;
	const uint64_t n = ours();
	return links > 2 + n ? links - n : links;
}

static void stat_of(struct stat *st)
{
	if (may_be_tasks(st->st_mode, (uint64_t)st->st_size, st->st_nlink))
		st->st_nlink = links_of(st->st_dev, st->st_ino, st->st_nlink);
}

static void statx_of(struct statx *st)
{
	const uint32_t asked = STATX_MODE | STATX_TYPE | STATX_NLINK | STATX_INO;
	if ((st->stx_mask & asked) == asked && may_be_tasks(st->stx_mode, st->stx_size, st->stx_nlink))
		st->stx_nlink = (uint32_t)links_of(makedev(st->stx_dev_major, st->stx_dev_minor), st->stx_ino, st->stx_nlink);
}

static bool names_ours(const char *name)
{
	uint32_t v = 0;
	for (; *name >= '0' && *name <= '9'; name++)
		v = v * 10 + (uint32_t)(*name - '0');
	return !*name && is_ours(v);
}

/* A directory, and behind "." and ".." only such as are named by numbers: what the first says, which is cheap. */
static bool has_numbers(const char *at, const char *end)
{
	const struct entry *e = (const struct entry *)at;
	while (at < end && e->name[0] == '.' && (!e->name[1] || (e->name[1] == '.' && !e->name[2]))) {
		at += e->length;
		e = (const struct entry *)at;
	}
	return at < end && e->type == 4 /* DT_DIR */ && e->name[0] >= '0' && e->name[0] <= '9';
}

/* Entries are taken out; what is left of a piece that had only those is the next one. */
static long entries_of(const struct rs_call *c)
{
	long n = c->result;
	if (!has_numbers((const char *)c->arg[1], (const char *)c->arg[1] + n) || !is_open("/proc/self/task", (int32_t)c->arg[0]))
		return n;
	for (;;) {
		char *at = (char *)c->arg[1], *end = at + n;
		while (at < end) {
			const uint16_t length = ((struct entry *)at)->length;
			if (!names_ours(((struct entry *)at)->name)) {
				at += length;
				continue;
			}
			end -= length;
			for (char *p = at; p < end; p++)
				*p = p[length];
		}
		if (end != (char *)c->arg[1])
			return end - (char *)c->arg[1];
		if ((n = RS_SYS3(SYS_getdents64, c->arg[0], c->arg[1], c->arg[2])) <= 0)
			return n;
	}
}

/* --- /proc/self/stat, /proc/self/status ------------------------------------------------------------------------------------------------------------------------ */

static bool begins(const char *p, const char *end, const char *with)
{
	while (*with && p < end && *p == *with)
		p++, with++;
	return !*with;
}

/* Where the number of threads begins; NULL: not in this piece. */
static char *in_status(char *p, const char *end)
{
	static const char line[] = "\nThreads:\t";
	for (; p < end; p++)
		if (*p == '\n' && begins(p, end, line))
			return p + sizeof line - 1;
	return NULL;
}

static char *in_stat(char *p, char *end)
{
	enum { BEHIND_NAME = 18 };
	char *name = NULL;
	for (char *q = p; q < end; q++)
		if (*q == ')')
			name = q;
	unsigned spaces = 0;
	for (p = name; p && p < end; p++)
		if (*p == ' ' && ++spaces == BEHIND_NAME)
			return p + 1;
	return NULL;
}

static bool is_stat(const char *p, const char *end)
{
	const char *from = p;
	while (p < end && *p >= '0' && *p <= '9')
		p++;
	return p > from && begins(p, end, " (");
}

/* The text may become shorter; what comes of the file behind it is read as it is. */
static long text_of(const struct rs_call *c)
{
	const long n = c->result;
	char *text = (char *)c->arg[1], *end = text + n;
	const bool status = begins(text, end, "Name:\t");
	if (!status && !is_stat(text, end))
		return n;
	const int32_t fd = (int32_t)c->arg[0];
	if (status ? !is_open("/proc/self/status", fd) && !is_open("/proc/thread-self/status", fd) : !is_open("/proc/self/stat", fd) && !is_open("/proc/thread-self/stat", fd))
		return n;
	char *number = status ? in_status(text, end) : in_stat(text, end), *p = number;
	uint64_t threads = 0;
	for (; p && p < end && *p >= '0' && *p <= '9'; p++)
		threads = threads * 10 + (uint64_t)(*p - '0');
	if (!p || p == end)
		return n;
	const uint64_t more = ours();
	if (threads <= more)
		return n;
	char digits[24];
	const char *from = digits;
	rs_guard_digits(digits, threads - more);
	char *to = number;
	while (*from)
		*to++ = *from++;
	while (p < end)
		*to++ = *p++;
	return to - text;
}

void rs_guard_tasks_hide(struct rs_call *c)
{
	if (c->result < 0 || rs_sandboxed)
		return;
	switch (c->number) {
	case SYS_read:
	case SYS_pread64:
		c->result = text_of(c);
		return;
	case SYS_getdents64:
		if (c->result > 0)
			c->result = entries_of(c);
		return;
	case SYS_fstat:
	case SYS_stat:
	case SYS_lstat: stat_of((struct stat *)c->arg[1]); return;
	case SYS_newfstatat: stat_of((struct stat *)c->arg[2]); return;
	case SYS_statx: statx_of((struct statx *)c->arg[4]); return;
	}
}
