/* fdmake.c: calls that make, copy and close descriptors.
 *
 * Ground rules: the real call decides; in filtered mode nothing but it. close and open are cancellation points: nothing is held across.
 */
#include "called.h"
#include "fd.h"
#include <fcntl.h>
#include <stdarg.h>

static int made_by(int fd, unsigned kind, uintptr_t pc, void *fp)
{
	if (fd < 0 || !rs_active || !rs_config.all)
		return fd;
	rs_channel_forget(fd);
	rs_channel_locks(fd, 0, RS_LOCKS_KNOWN);
	if (kind) {
		uint64_t id = rs_channel_fresh();
		rs_channel_set(fd, (struct rs_channel){id, id, (uint8_t)kind});
	}
	rs_fd_opened(fd, pc, fp);
	return fd;
}
/* In the exported function itself. */
#define made(fd, kind) made_by(fd, kind, RS_CALLER(), __builtin_frame_address(0))

#define NEED(name) \
	if (RS_UNLIKELY(!rs_real.name)) \
		rs_real_init()

/* A call that returns a new descriptor; kind 0: identified by its inode when first used. */
#define MAKE(name, kind, params, args) \
	RS_EXPORT int name params; \
	RS_EXPORT int name params \
	{ \
		NEED(name); \
		rs_watch_changes(); \
		return made(rs_real.name args, kind); \
	}
MAKE(socket, 0, (int a, int b, int c), (a, b, c))
MAKE(eventfd, RS_CHANNEL_EVENTFD, (unsigned a, int b), (a, b))
MAKE(timerfd_create, RS_CHANNEL_TIMERFD, (int a, int b), (a, b))
MAKE(epoll_create, RS_CHANNEL_EPOLL, (int a), (a))
MAKE(epoll_create1, RS_CHANNEL_EPOLL, (int a), (a))
MAKE(creat, 0, (const char *a, mode_t b), (a, b))
MAKE(__open_2, 0, (const char *a, int b), (a, b))
MAKE(__open64_2, 0, (const char *a, int b), (a, b))
MAKE(__openat_2, 0, (int a, const char *b, int c), (a, b, c))
MAKE(__mq_open_2, 0, (const char *a, int b), (a, b))
MAKE(__openat64_2, 0, (int a, const char *b, int c), (a, b, c))

RS_EXPORT int signalfd(int fd, const sigset_t *mask, int flags);
RS_EXPORT int signalfd(int fd, const sigset_t *mask, int flags)
{
	NEED(signalfd);
	int r = rs_real.signalfd(fd, mask, flags);
	return fd == -1 ? made(r, RS_CHANNEL_SIGNALFD) : r;
}

/* The mode is there only with O_CREAT or O_TMPFILE; reading an argument that is not there gives junk that open ignores, but is not C. */
#define OPEN(name, params, args, before) \
	RS_EXPORT int name params; \
	RS_EXPORT int name params \
	{ \
		NEED(name); \
		mode_t mode = 0; \
		if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE) { \
			va_list ap; \
			va_start(ap, flags); \
			mode = va_arg(ap, mode_t); \
			va_end(ap); \
		} \
		rs_watch_changes(); \
		return made(rs_real.name args, 0); \
	}
OPEN(open, (const char *path, int flags, ...), (path, flags, mode), )
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode), )
OPEN(openat, (int dir, const char *path, int flags, ...), (dir, path, flags, mode), )
OPEN(openat64, (int dir, const char *path, int flags, ...), (dir, path, flags, mode), )

RS_EXPORT mqd_t mq_open(const char *name, int flags, ...)
{
	NEED(mq_open);
	mode_t mode = 0;
	struct mq_attr *attr = NULL;
	if (flags & O_CREAT) {
		va_list ap;
		va_start(ap, flags);
		mode = va_arg(ap, mode_t);
		attr = va_arg(ap, struct mq_attr *);
		va_end(ap);
	}
	return made(rs_real.mq_open(name, flags, mode, attr), 0);
}

static int made_pipe(int r, int *fds, uintptr_t pc, void *fp)
{
	if (r == 0) {
		made_by(fds[0], 0, pc, fp);
		made_by(fds[1], 0, pc, fp);
	}
	return r;
}

RS_EXPORT int pipe(int fds[2]);
RS_EXPORT int pipe(int fds[2])
{
	NEED(pipe);
	return made_pipe(rs_real.pipe(fds), fds, RS_CALLER(), __builtin_frame_address(0));
}

RS_EXPORT int pipe2(int fds[2], int flags);
RS_EXPORT int pipe2(int fds[2], int flags)
{
	NEED(pipe2);
	return made_pipe(rs_real.pipe2(fds, flags), fds, RS_CALLER(), __builtin_frame_address(0));
}

RS_EXPORT int socketpair(int domain, int type, int protocol, int fds[2])
{
	NEED(socketpair);
	int r = rs_real.socketpair(domain, type, protocol, fds);
	if (r == 0 && rs_active && rs_config.all) {
		uint64_t id = rs_channel_fresh(), back = id | 1ull << 63;
		rs_channel_set(fds[0], (struct rs_channel){id, back, RS_CHANNEL_SOCKET});
		rs_channel_set(fds[1], (struct rs_channel){back, id, RS_CHANNEL_SOCKET});
		rs_fd_opened(fds[0], RS_CALLER(), __builtin_frame_address(0));
		rs_fd_opened(fds[1], RS_CALLER(), __builtin_frame_address(0));
	}
	return r;
}

RS_EXPORT int dup(int fd);
RS_EXPORT int dup(int fd)
{
	NEED(dup);
	if (RS_LIKELY(!rs_config.all))
		return rs_real.dup(fd);
	const struct rs_called c = RS_CALLED();
	rs_fd_use(&c, fd);
	int r = rs_real.dup(fd);
	rs_fd_used(&c, fd, r < 0);
	if (r >= 0 && rs_active) {
		rs_channel_copy(fd, r);
		rs_fd_opened(r, RS_CALLER(), __builtin_frame_address(0));
	}
	return r;
}

/* The range of a lock is all of the file. */
static bool is_all(const struct flock *l) { return l->l_whence == SEEK_SET && l->l_start == 0 && l->l_len == 0; }

/* Every command's argument is a word or a pointer, or absent: passing on a word that was not given is what glibc does too. */
#define FCNTL(name) \
	RS_EXPORT int name(int fd, int cmd, ...); \
	RS_EXPORT int name(int fd, int cmd, ...) \
	{ \
		NEED(name); \
		va_list ap; \
		va_start(ap, cmd); \
		void *arg = va_arg(ap, void *); \
		va_end(ap); \
		if (RS_LIKELY(!rs_config.all) || cmd == F_GETFD) /* which asks whether there is one */ \
			return rs_real.name(fd, cmd, arg); \
		const struct rs_called c = RS_CALLED(); \
		rs_fd_use(&c, fd); \
		bool locks = cmd == F_OFD_SETLK || cmd == F_OFD_SETLKW; \
		if (locks) \
			rs_filelock_before(fd, RS_OFD); \
		int r = rs_real.name(fd, cmd, arg); \
		if (locks && r == 0 && ((const struct flock *)arg)->l_type != F_UNLCK) \
			rs_filelock_taken(fd, ((const struct flock *)arg)->l_type == F_RDLCK ? RS_OFD_SHARED : RS_OFD_EXCLUSIVE); \
		else if (locks && r == 0 && is_all(arg)) \
			rs_channel_locks(fd, RS_OFD, RS_OFD_KNOWN); \
		rs_fd_used(&c, fd, r < 0); \
		if (r >= 0 && (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC)) { \
			rs_channel_copy(fd, r); \
			rs_fd_opened(r, RS_CALLER(), __builtin_frame_address(0)); \
		} \
		return r; \
	}
FCNTL(fcntl)
FCNTL(fcntl64)

/* Before a descriptor is closed: what its readers may take as the end of the file. */
static void closing(int fd)
{
	struct rs_thread *t = rs_fd_thread();
	if (!t)
		return;
	if (rs_channel_locked(fd) & RS_LOCKED)
		rs_filelock_before(fd, RS_LOCKED);
	struct rs_channel c = rs_channel_of(fd);
	rs_watch_changes();
	if (rs_channel_orders(c) && c.kind != RS_CHANNEL_TTY && c.kind != RS_CHANNEL_FILE)
		RS_EMIT(t, CHANNEL_RELEASE, channel_release, c.out, c.kind, (uint32_t)fd);
	rs_channel_forget(fd);
}

RS_EXPORT int close(int fd);
RS_EXPORT int close(int fd)
{
	NEED(close);
	if (RS_UNLIKELY(rs_config.all)) {
		const struct rs_called c = RS_CALLED();
		rs_fd_close(&c, fd);
		closing(fd);
	}
	return rs_real.close(fd);
}

RS_EXPORT int mq_close(mqd_t fd)
{
	NEED(mq_close);
	if (RS_UNLIKELY(rs_config.all)) {
		const struct rs_called c = RS_CALLED();
		rs_fd_close(&c, fd);
		rs_channel_forget(fd);
	}
	return rs_real.mq_close(fd);
}

RS_EXPORT int dup2(int fd, int to);
RS_EXPORT int dup2(int fd, int to)
{
	NEED(dup2);
	if (RS_LIKELY(!rs_config.all))
		return rs_real.dup2(fd, to);
	const struct rs_called c = RS_CALLED();
	rs_fd_use(&c, fd);
	if (fd != to) {
		rs_fd_use(&c, to);
		closing(to);
	}
	int r = rs_real.dup2(fd, to);
	rs_fd_used(&c, fd, r < 0);
	if (r >= 0 && fd != to && rs_active) {
		rs_channel_copy(fd, to);
		rs_fd_replaced(to, RS_CALLER(), __builtin_frame_address(0));
	}
	return r;
}

RS_EXPORT int dup3(int fd, int to, int flags);
RS_EXPORT int dup3(int fd, int to, int flags)
{
	NEED(dup3);
	if (RS_LIKELY(!rs_config.all))
		return rs_real.dup3(fd, to, flags);
	const struct rs_called c = RS_CALLED();
	rs_fd_use(&c, fd);
	if (fd != to) {
		rs_fd_use(&c, to);
		closing(to);
	}
	int r = rs_real.dup3(fd, to, flags);
	rs_fd_used(&c, fd, r < 0);
	if (r >= 0 && rs_active) {
		rs_channel_copy(fd, to);
		rs_fd_replaced(to, RS_CALLER(), __builtin_frame_address(0));
	}
	return r;
}

RS_EXPORT int close_range(unsigned lo, unsigned hi, int flags);
RS_EXPORT int close_range(unsigned lo, unsigned hi, int flags)
{
	NEED(close_range);
	enum { UNSHARE = 2, CLOEXEC = 4 };
	if (RS_UNLIKELY(rs_config.all)) {
		const struct rs_called c = RS_CALLED();
		if (flags & UNSHARE)
			rs_fd_shared_no_more();
		else if (!(flags & CLOEXEC))
			rs_fd_close_range(&c, lo, hi);
		for (unsigned fd = lo; !(flags & CLOEXEC) && fd <= hi && fd < RS_FD_PLACES; fd++)
			if (rs_channel_locked((int)fd) & RS_LOCKED)
				rs_filelock_before((int)fd, RS_LOCKED);
		rs_channel_forget_range(lo, hi);
	}
	return rs_real.close_range(lo, hi, flags);
}

RS_EXPORT void closefrom(int lo);
RS_EXPORT void closefrom(int lo)
{
	NEED(closefrom);
	if (RS_UNLIKELY(rs_config.all)) {
		const struct rs_called c = RS_CALLED();
		rs_fd_close_range(&c, lo < 0 ? 0 : (unsigned)lo, ~0u);
		rs_channel_forget_range(lo < 0 ? 0 : (unsigned)lo, ~0u);
	}
	rs_real.closefrom(lo);
}

/* Other names of the same functions that libc exports: of before POSIX had the name, and for its own libraries. */
RS_ALIAS(__open, open);
RS_ALIAS(__open64, open64);
RS_ALIAS(creat64, creat);
RS_ALIAS(__close, close);
RS_ALIAS(__dup2, dup2);
RS_ALIAS(__pipe, pipe);
RS_ALIAS(__socket, socket);
RS_ALIAS(__fcntl, fcntl);
RS_ALIAS(__libc_fcntl64, fcntl64);
