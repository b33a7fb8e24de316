/* guardfile.c: what the kernel keeps for the program beside memory and registers: offsets of its open files, actions of its signals. Coordinator only. See guard.h.
 *
 * The coordinator has a table of descriptors of its own; to move an offset it takes the open file itself for a moment (pidfd_getfd), which shares it. Descriptors 0 to 2 are left alone, others may share their offset, and so
 * are files that are written at their end. Descriptors that the epoch opened or closed are the business of the classes of system calls. Where these
 * are followed (in a session), so are offsets and actions, and nothing is kept here. */
#include "guardsys.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_getfd
#define SYS_pidfd_getfd 438
#endif

enum { MAX_FILES = 1 << 16, SIGNALS = 64 };
struct file { uint32_t fd; uint64_t offset, device, inode; };
struct action { uintptr_t handler; uint64_t flags; uintptr_t restorer; uint64_t mask; };
static struct kept { uint32_t files; int pidfd; struct action action[SIGNALS + 1]; struct file file[MAX_FILES]; } *kept;

/* A descriptor of ours for the program's, which lasts until it is closed; only if it is of a file with an offset to keep. */
static long borrow(uint32_t fd, struct stat *st)
{
	long own = RS_SYS3(SYS_pidfd_getfd, kept->pidfd, fd, 0);
	if (own < 0)
		return own;
	if (RS_SYS2(SYS_fstat, own, st) == 0 && S_ISREG(st->st_mode) && !(RS_SYS2(SYS_fcntl, own, F_GETFL) & (O_APPEND | O_PATH)))
		return own;
	RS_SYS1(SYS_close, own);
	return -EBADF;
}

static long keep(void *arg, uint32_t fd)
{
	struct stat st;
	(void)arg;
	if (fd <= 2)
		return 0;
	long own = borrow(fd, &st);
	if (own < 0)
		return 0;
	long at = RS_SYS3(SYS_lseek, own, 0, SEEK_CUR);
	RS_SYS1(SYS_close, own);
	if (kept->files == MAX_FILES)
		return -E2BIG;
	if (at >= 0)
		kept->file[kept->files++] = (struct file){fd, (uint64_t)at, st.st_dev, st.st_ino};
	return 0;
}

/* A task that has the program's table. A kernel before 6.9 knows no descriptors of threads: then it is the first thread's. */
static long open_task(uint32_t tid)
{
	long fd = RS_SYS2(SYS_pidfd_open, tid, O_EXCL /* PIDFD_THREAD */);
	return fd < 0 ? RS_SYS2(SYS_pidfd_open, rs_os_pid(), 0) : fd;
}

long rs_guard_files_borrow(uint32_t tid, uint32_t fd)
{
	long pidfd = open_task(tid), own = pidfd < 0 ? pidfd : RS_SYS3(SYS_pidfd_getfd, pidfd, fd, 0);
	if (pidfd >= 0)
		RS_SYS1(SYS_close, pidfd);
	return own;
}

long rs_guard_files_begin(void)
{
	kept = rs_guard_map(RS_ARENA_KEPT, sizeof *kept);
	return kept ? 0 : -ENOMEM;
}

long rs_guard_files_keep(int task, uint32_t tid)
{
	char name[40], *end;
	kept->files = 0;
	/* To borrow a file is to close it: a message queue then forgets whom it was to notify, some file systems write out what they have. */
	if (rs_guard_sys_follows())
		return 0;
	for (int sig = 1; sig <= SIGNALS; sig++)
		RS_SYS4(SYS_rt_sigaction, sig, NULL, &kept->action[sig], 8);
	end = rs_guard_digits(name, tid);
	rs_os_copy(end, "/fd", 4);
	long dir = rs_guard_open(task, name, O_DIRECTORY), pidfd = open_task(tid);
	long r = dir < 0 ? dir : pidfd < 0 ? pidfd : 0;
	kept->pidfd = (int)pidfd;
	if (r == 0)
		r = rs_guard_numbers((int)dir, keep, NULL);
	if (dir >= 0)
		RS_SYS1(SYS_close, dir);
	if (pidfd >= 0)
		RS_SYS1(SYS_close, pidfd);
	return r;
}

long rs_guard_files_back(uint32_t tid)
{
	struct action now;
	long pidfd = open_task(tid);
	if (pidfd < 0)
		return pidfd;
	kept->pidfd = (int)pidfd;
	for (uint32_t i = 0; i < kept->files && !rs_guard_sys_follows(); i++) {
		const struct file *f = &kept->file[i];
		struct stat st;
		long own = borrow(f->fd, &st);
		if (own < 0)
			continue;
		if (st.st_dev == f->device && st.st_ino == f->inode)
			RS_SYS3(SYS_lseek, own, f->offset, SEEK_SET);
		RS_SYS1(SYS_close, own);
	}
	RS_SYS1(SYS_close, pidfd);
	for (int sig = 1; sig <= SIGNALS && !rs_guard_sys_follows(); sig++)
		if (RS_SYS4(SYS_rt_sigaction, sig, NULL, &now, 8) == 0 && !rs_os_equal(&now, &kept->action[sig], sizeof now))
			RS_SYS4(SYS_rt_sigaction, sig, &kept->action[sig], NULL, 8);
	return 0;
}

void rs_guard_say(uint32_t tid, const char *what, long error)
{
	long pidfd = open_task(tid), err = pidfd < 0 ? pidfd : RS_SYS3(SYS_pidfd_getfd, pidfd, 2, 0);
	if (err >= 0 && (err == 2 || RS_SYS3(SYS_dup3, err, 2, O_CLOEXEC) == 2))
		rs_os_say(what, error);
}
