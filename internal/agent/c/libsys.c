/* libsys.c: functions of the C library that are system calls, which write to their callers' memory or read it, and are not interposed for other reasons (called.h, kernel.c).
 *
 * errno, results and cancellation are the real function's. */
#include "called.h"
#include "fd.h"
#include <fcntl.h>
#include <sched.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

/* `returned` is what the system call returned, by r. */
#define SYSTEM(ret, name, params, args, returned, number, ...) \
	RS_TELLS(ret, name, params) \
	{ \
		RS_NEED(name); \
		const struct rs_called c = RS_CALLED(); \
		const long a_[6] = {__VA_ARGS__}; \
		rs_kernel_reads(&c, number, a_); \
		ret r = real_##name args; \
		rs_kernel_wrote(&c, number, a_, returned); \
		return r; \
	}

#define NAMED(name, type, number) SYSTEM(int, name, (const char *path, struct type *s), (path, s), r, number, (long)path, (long)s)
NAMED(stat, stat, SYS_stat)
NAMED(stat64, stat64, SYS_stat)
NAMED(lstat, stat, SYS_lstat)
NAMED(lstat64, stat64, SYS_lstat)
SYSTEM(int, fstat, (int fd, struct stat *s), (fd, s), r, SYS_fstat, fd, (long)s)
SYSTEM(int, fstat64, (int fd, struct stat64 *s), (fd, s), r, SYS_fstat, fd, (long)s)
SYSTEM(int, fstatat, (int at, const char *path, struct stat *s, int f), (at, path, s, f), r, SYS_newfstatat, at, (long)path, (long)s)
SYSTEM(int, fstatat64, (int at, const char *path, struct stat64 *s, int f), (at, path, s, f), r, SYS_newfstatat, at, (long)path, (long)s)
SYSTEM(int, statx, (int at, const char *path, int f, unsigned m, struct statx *s), (at, path, f, m, s), r, SYS_statx, at, (long)path, f, m, (long)s)

SYSTEM(ssize_t, getrandom, (void *p, size_t n, unsigned f), (p, n, f), r, SYS_getrandom, (long)p, (long)n, f)
SYSTEM(ssize_t, readlink, (const char *path, char *p, size_t n), (path, p, n), r, SYS_readlink, (long)path, (long)p, (long)n)
SYSTEM(ssize_t, readlinkat, (int at, const char *path, char *p, size_t n), (at, path, p, n), r, SYS_readlinkat, at, (long)path, (long)p, (long)n)
SYSTEM(ssize_t, __readlink_chk, (const char *path, char *p, size_t n, size_t room), (path, p, n, room), r, SYS_readlink, (long)path, (long)p, (long)n)
SYSTEM(ssize_t, __readlinkat_chk, (int at, const char *path, char *p, size_t n, size_t room), (at, path, p, n, room), r, SYS_readlinkat, at, (long)path, (long)p, (long)n)
SYSTEM(int, uname, (struct utsname * s), (s), r, SYS_uname, (long)s)
SYSTEM(int, sysinfo, (struct sysinfo * s), (s), r, SYS_sysinfo, (long)s)
SYSTEM(int, getrusage, (__rusage_who_t who, struct rusage *s), (who, s), r, SYS_getrusage, who, (long)s)
SYSTEM(int, gettimeofday, (struct timeval * t, void *zone), (t, zone), r, SYS_gettimeofday, (long)t)
SYSTEM(int, clock_gettime, (clockid_t clock, struct timespec *t), (clock, t), r, SYS_clock_gettime, clock, (long)t)
SYSTEM(int, nanosleep, (const struct timespec *t, struct timespec *rest), (t, rest), r, SYS_nanosleep, (long)t)
SYSTEM(int, clock_nanosleep, (clockid_t clock, int f, const struct timespec *t, struct timespec *rest), (clock, f, t, rest), r, SYS_clock_nanosleep, clock, f, (long)t)

SYSTEM(int, getsockname, (int fd, struct sockaddr *s, socklen_t *n), (fd, s, n), r, SYS_getsockname, fd, (long)s, (long)n)
SYSTEM(int, getpeername, (int fd, struct sockaddr *s, socklen_t *n), (fd, s, n), r, SYS_getpeername, fd, (long)s, (long)n)
SYSTEM(int, getsockopt, (int fd, int level, int name, void *p, socklen_t *n), (fd, level, name, p, n), r, SYS_getsockopt, fd, level, name, (long)p, (long)n)
SYSTEM(int, setsockopt, (int fd, int level, int name, const void *p, socklen_t n), (fd, level, name, p, n), r, SYS_setsockopt, fd, level, name, (long)p, n)
SYSTEM(int, bind, (int fd, const struct sockaddr *s, socklen_t n), (fd, s, n), r, SYS_bind, fd, (long)s, n)

#define PATH(name, number) SYSTEM(int, name, (const char *path), (path), r, number, (long)path)
PATH(chdir, SYS_chdir)
SYSTEM(int, access, (const char *path, int mode), (path, mode), r, SYS_access, (long)path)

/* Who finds that there is something to read has what was done before it was written. */
RS_TELLS(int, ioctl, (int fd, unsigned long request, ...))
{
	RS_CALL(ioctl);
	va_list v;
	va_start(v, request);
	void *p = va_arg(v, void *);
	va_end(v);
	int r = real_ioctl(fd, request, p);
	if (request == FIONREAD && r == 0) {
		if (*(const int *)p > 0)
			rs_fd_ready(fd);
		rs_called_write(&c, p, sizeof(int));
	}
	return r;
}

RS_TELLS(int, unshare, (int flags))
{
	RS_NEED(unshare);
	if (flags & CLONE_FILES)
		rs_fd_shared_no_more();
	return real_unshare(flags);
}
