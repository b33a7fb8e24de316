/* watch.c: what inotify and fanotify tell of. What a thread did before a call that changes a file, or looks at one, is before what another does that has read or waited for an event. All such descriptors are one channel, and which
 * files they watch is not asked: more order than there is, but only in processes that have one, from then on.
 *
 * Not seen: directories that are read, attributes by the calls on extended ones, exec, what a call by syscall() does, answers to fanotify.
 */
#include "called.h"
#include "fd.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
#include <utime.h>

bool rs_watching;

void rs_watch_tell(void)
{
	struct rs_thread *t = rs_fd_thread();
	int e = errno;
	if (t)
		RS_EMIT(t, CHANNEL_RELEASE, channel_release, RS_CHANNEL_WATCH, RS_CHANNEL_OTHER, ~0u);
	errno = e;
}

static int made_by(int fd, uintptr_t pc, void *fp)
{
	if (fd >= 0 && rs_fd_thread()) {
		rs_channel_set(fd, (struct rs_channel){RS_CHANNEL_WATCH, RS_CHANNEL_WATCH, RS_CHANNEL_OTHER});
		rs_fd_opened(fd, pc, fp);
		__atomic_store_n(&rs_watching, true, __ATOMIC_RELAXED);
	}
	return fd;
}
#define made(fd) made_by(fd, RS_CALLER(), __builtin_frame_address(0))

RS_TELLS(int, inotify_init, (void))
{
	RS_NEED(inotify_init);
	return made(real_inotify_init());
}

RS_TELLS(int, inotify_init1, (int flags))
{
	RS_NEED(inotify_init1);
	return made(real_inotify_init1(flags));
}

RS_TELLS(int, fanotify_init, (unsigned flags, unsigned of))
{
	RS_NEED(fanotify_init);
	return made(real_fanotify_init(flags, of));
}

/* What the call reads for its caller is told as libsys.c's are. */
#define CHANGES(ret, name, params, args, number, ...) \
	RS_TELLS(ret, name, params) \
	{ \
		RS_NEED(name); \
		const struct rs_called c = RS_CALLED(); \
		const long a_[6] = {__VA_ARGS__}; \
		rs_kernel_reads(&c, number, a_); \
		rs_watch_changes(); \
		return real_##name args; \
	}
CHANGES(int, inotify_rm_watch, (int fd, int w), (fd, w), SYS_inotify_rm_watch, fd, w)
CHANGES(int, unlink, (const char *path), (path), SYS_unlink, (long)path)
CHANGES(int, unlinkat, (int at, const char *path, int f), (at, path, f), SYS_unlinkat, at, (long)path, f)
CHANGES(int, rmdir, (const char *path), (path), SYS_rmdir, (long)path)
CHANGES(int, remove, (const char *path), (path), SYS_unlink, (long)path)
CHANGES(int, mkdir, (const char *path, mode_t m), (path, m), SYS_mkdir, (long)path, m)
CHANGES(int, mkdirat, (int at, const char *path, mode_t m), (at, path, m), SYS_mkdirat, at, (long)path, m)
CHANGES(int, rename, (const char *from, const char *to), (from, to), SYS_rename, (long)from, (long)to)
CHANGES(int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to), SYS_renameat, a, (long)from, b, (long)to)
CHANGES(int, renameat2, (int a, const char *from, int b, const char *to, unsigned f), (a, from, b, to, f), SYS_renameat2, a, (long)from, b, (long)to, f)
CHANGES(int, link, (const char *from, const char *to), (from, to), SYS_link, (long)from, (long)to)
CHANGES(int, linkat, (int a, const char *from, int b, const char *to, int f), (a, from, b, to, f), SYS_linkat, a, (long)from, b, (long)to, f)
CHANGES(int, symlink, (const char *from, const char *to), (from, to), SYS_symlink, (long)from, (long)to)
CHANGES(int, symlinkat, (const char *from, int at, const char *to), (from, at, to), SYS_symlinkat, (long)from, at, (long)to)
CHANGES(int, mkfifo, (const char *path, mode_t m), (path, m), SYS_mknod, (long)path, m)
CHANGES(int, mkfifoat, (int at, const char *path, mode_t m), (at, path, m), SYS_mknodat, at, (long)path, m)
CHANGES(int, mknod, (const char *path, mode_t m, dev_t d), (path, m, d), SYS_mknod, (long)path, m)
CHANGES(int, mknodat, (int at, const char *path, mode_t m, dev_t d), (at, path, m, d), SYS_mknodat, at, (long)path, m)
CHANGES(int, truncate, (const char *path, off_t n), (path, n), SYS_truncate, (long)path)
CHANGES(int, truncate64, (const char *path, off64_t n), (path, n), SYS_truncate, (long)path)
CHANGES(int, ftruncate, (int fd, off_t n), (fd, n), SYS_ftruncate, fd)
CHANGES(int, ftruncate64, (int fd, off64_t n), (fd, n), SYS_ftruncate, fd)
CHANGES(int, fallocate, (int fd, int how, off_t o, off_t n), (fd, how, o, n), SYS_fallocate, fd)
CHANGES(int, fallocate64, (int fd, int how, off64_t o, off64_t n), (fd, how, o, n), SYS_fallocate, fd)
CHANGES(int, posix_fallocate, (int fd, off_t o, off_t n), (fd, o, n), SYS_fallocate, fd)
CHANGES(int, posix_fallocate64, (int fd, off64_t o, off64_t n), (fd, o, n), SYS_fallocate, fd)
CHANGES(int, chmod, (const char *path, mode_t m), (path, m), SYS_chmod, (long)path, m)
CHANGES(int, fchmod, (int fd, mode_t m), (fd, m), SYS_fchmod, fd)
CHANGES(int, fchmodat, (int at, const char *path, mode_t m, int f), (at, path, m, f), SYS_fchmodat, at, (long)path, m)
CHANGES(int, chown, (const char *path, uid_t u, gid_t g), (path, u, g), SYS_chown, (long)path)
CHANGES(int, lchown, (const char *path, uid_t u, gid_t g), (path, u, g), SYS_lchown, (long)path)
CHANGES(int, fchown, (int fd, uid_t u, gid_t g), (fd, u, g), SYS_fchown, fd)
CHANGES(int, fchownat, (int at, const char *path, uid_t u, gid_t g, int f), (at, path, u, g, f), SYS_fchownat, at, (long)path)
CHANGES(int, utime, (const char *path, const struct utimbuf *t), (path, t), SYS_utime, (long)path)
CHANGES(int, utimes, (const char *path, const struct timeval t[2]), (path, t), SYS_utimes, (long)path)
CHANGES(int, utimensat, (int at, const char *path, const struct timespec t[2], int f), (at, path, t, f), SYS_utimensat, at, (long)path)
CHANGES(int, futimens, (int fd, const struct timespec t[2]), (fd, t), SYS_utimensat, fd)
