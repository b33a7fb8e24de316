/* fd.c: reads, writes and waits on descriptors, the orders that the kernel makes.
 *
 * Ground rules: all mode only; in filtered mode each function is a jump to the real one behind one branch. The calls are cancellation
 * points: nothing is held across the real call, so forced unwinding may pass. errno, partial results and EINTR are the real call's.
 * A write is told before the call (release), a read after it (acquire) if it returned something, the end of the file included.
 *
 * What a call uses the descriptor for counts as an access to it (descriptor.c).
 *
 * Not seen: sendfile's page cache order, shared memory, a writer that waits for room (what its reader did before comes before what it does next). stdio is stream.c's, io_uring uring.c's.
 */
#include "patch.h"
#include "called.h"
#include "fd.h"
#include "proc.h"
#include <errno.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

static void release(struct rs_thread *t, int fd)
{
	struct rs_channel c = rs_channel_of(fd);
	rs_watch_changes();
	if (rs_channel_orders(c))
		RS_EMIT(t, CHANNEL_RELEASE, channel_release, c.out, c.kind, (uint32_t)fd);
}

static void acquire(struct rs_thread *t, int fd)
{
	struct rs_channel c = rs_channel_of(fd);
	if (c.kind == RS_PIDFD)
		rs_waited_for(t, fd);
	else if (c.kind)
		RS_EMIT(t, CHANNEL_ACQUIRE, channel_acquire, c.in, c.kind, (uint32_t)fd);
}

void rs_fd_ready(int fd)
{
	struct rs_thread *t = rs_fd_thread();
	int e = errno;
	if (t)
		acquire(t, fd);
	errno = e;
}

#define NEED(name) \
	if (RS_UNLIKELY(!rs_real.name)) \
		rs_real_init()

/* What the kernel reads and writes for the caller (kernel.c): number and arguments of the system call. */
#define KERNEL(number, ...) \
	const unsigned number_ = number; \
	const long arguments_[6] = {__VA_ARGS__}; \
	const struct rs_called caller_ = RS_CALLED()
#define USE(fd) rs_fd_use(&caller_, fd)
#define USED(fd, failed) rs_fd_used(&caller_, fd, failed)
#define KERNEL_READS() rs_kernel_reads(&caller_, number_, arguments_)
#define KERNEL_WROTE(result) rs_kernel_wrote(&caller_, number_, arguments_, result)

/* READ: acquire of fd when the result is ≥ 0. WRITE: release of fd before. */
#define READ(ret, name, params, args, ...) \
	RS_EXPORT ret name params; \
	RS_EXPORT ret name params \
	{ \
		NEED(name); \
		if (RS_LIKELY(!rs_config.all)) \
			return rs_real.name args; \
		KERNEL(__VA_ARGS__); \
		USE(fd); \
		KERNEL_READS(); \
		rs_watch_changes(); \
		ret r = rs_real.name args; \
		USED(fd, r < 0); \
		struct rs_thread *t = r >= 0 ? rs_fd_thread() : NULL; \
		if (t) { \
			int e = errno; \
			acquire(t, fd); \
			KERNEL_WROTE(r); \
			errno = e; \
		} \
		return r; \
	}
#define WRITE(ret, name, params, args, ...) \
	RS_EXPORT ret name params; \
	RS_EXPORT ret name params \
	{ \
		NEED(name); \
		if (RS_LIKELY(!rs_config.all)) \
			return rs_real.name args; \
		KERNEL(__VA_ARGS__); \
		USE(fd); \
		KERNEL_READS(); \
		struct rs_thread *t = rs_fd_thread(); \
		if (t) \
			release(t, fd); \
		ret r = rs_real.name args; \
		USED(fd, r < 0); \
		return r; \
	}

/* A signalfd gives whole siginfos: each is a signal taken. */
static void read_done(int fd, const void *buf, ssize_t r)
{
	struct rs_thread *t = rs_fd_thread();
	if (!t)
		return;
	int e = errno;
	struct rs_channel c = rs_channel_of(fd);
	if (c.kind == RS_CHANNEL_SIGNALFD) {
		const struct signalfd_siginfo *s = buf;
		for (size_t n = (size_t)r / sizeof *s; n > 0; n--, s++)
			RS_EMIT(t, SIGNAL_TAKEN, signal_taken, s->ssi_signo, (uint32_t)s->ssi_code);
	} else if (rs_channel_orders(c)) {
		RS_EMIT(t, CHANNEL_ACQUIRE, channel_acquire, c.in, c.kind, (uint32_t)fd);
	}
	errno = e;
}

RS_EXPORT ssize_t read(int fd, void *buf, size_t n);
RS_EXPORT ssize_t read(int fd, void *buf, size_t n)
{
	NEED(read);
	if (RS_LIKELY(!rs_config.all))
		return rs_real.read(fd, buf, n);
	KERNEL(SYS_read, fd, (long)buf, (long)n);
	USE(fd);
	rs_watch_changes();
	ssize_t r = rs_real.read(fd, buf, n);
	USED(fd, r < 0);
	if (r >= 0) {
		read_done(fd, buf, r);
		KERNEL_WROTE(r);
	}
	return r;
}

RS_EXPORT ssize_t __read_chk(int fd, void *buf, size_t n, size_t room);
RS_EXPORT ssize_t __read_chk(int fd, void *buf, size_t n, size_t room)
{
	NEED(__read_chk);
	if (RS_LIKELY(!rs_config.all))
		return rs_real.__read_chk(fd, buf, n, room);
	KERNEL(SYS_read, fd, (long)buf, (long)n);
	USE(fd);
	rs_watch_changes();
	ssize_t r = rs_real.__read_chk(fd, buf, n, room);
	USED(fd, r < 0);
	if (r >= 0) {
		read_done(fd, buf, r);
		KERNEL_WROTE(r);
	}
	return r;
}

READ(ssize_t, pread, (int fd, void *b, size_t n, off_t o), (fd, b, n, o), SYS_pread64, fd, (long)b, (long)n)
READ(ssize_t, __pread_chk, (int fd, void *b, size_t n, off_t o, size_t m), (fd, b, n, o, m), SYS_pread64, fd, (long)b, (long)n)
READ(ssize_t, readv, (int fd, const struct iovec *v, int n), (fd, v, n), SYS_readv, fd, (long)v, n)
READ(ssize_t, preadv, (int fd, const struct iovec *v, int n, off_t o), (fd, v, n, o), SYS_preadv, fd, (long)v, n)
READ(ssize_t, preadv2, (int fd, const struct iovec *v, int n, off_t o, int f), (fd, v, n, o, f), SYS_preadv2, fd, (long)v, n)
READ(ssize_t, recv, (int fd, void *b, size_t n, int f), (fd, b, n, f), SYS_recvfrom, fd, (long)b, (long)n)
READ(ssize_t, __recv_chk, (int fd, void *b, size_t n, size_t m, int f), (fd, b, n, m, f), SYS_recvfrom, fd, (long)b, (long)n)
READ(ssize_t, recvfrom, (int fd, void *b, size_t n, int f, struct sockaddr *a, socklen_t *l), (fd, b, n, f, a, l), SYS_recvfrom, fd, (long)b, (long)n, f, (long)a, (long)l)
READ(ssize_t, __recvfrom_chk, (int fd, void *b, size_t n, size_t m, int f, struct sockaddr *a, socklen_t *l), (fd, b, n, m, f, a, l), SYS_recvfrom, fd, (long)b, (long)n, f, (long)a, (long)l)
READ(ssize_t, recvmsg, (int fd, struct msghdr *m, int f), (fd, m, f), SYS_recvmsg, fd, (long)m)
READ(int, recvmmsg, (int fd, struct mmsghdr *m, unsigned n, int f, struct timespec *w), (fd, m, n, f, w), SYS_recvmmsg, fd, (long)m, n)
READ(int, eventfd_read, (int fd, uint64_t *v), (fd, v), SYS_eventfd, fd, (long)v)

/* Linux: a POSIX message queue is a descriptor, with an inode of its own. */
READ(ssize_t, mq_receive, (mqd_t fd, char *b, size_t n, unsigned *p), (fd, b, n, p), SYS_mq_timedreceive, fd, (long)b, (long)n, (long)p)
READ(ssize_t, mq_timedreceive, (mqd_t fd, char *b, size_t n, unsigned *p, const struct timespec *w), (fd, b, n, p, w), SYS_mq_timedreceive, fd, (long)b, (long)n, (long)p)
WRITE(int, mq_send, (mqd_t fd, const char *b, size_t n, unsigned p), (fd, b, n, p), SYS_mq_timedsend, fd, (long)b, (long)n)
WRITE(int, mq_timedsend, (mqd_t fd, const char *b, size_t n, unsigned p, const struct timespec *w), (fd, b, n, p, w), SYS_mq_timedsend, fd, (long)b, (long)n)

WRITE(ssize_t, write, (int fd, const void *b, size_t n), (fd, b, n), SYS_write, fd, (long)b, (long)n)
WRITE(ssize_t, pwrite, (int fd, const void *b, size_t n, off_t o), (fd, b, n, o), SYS_pwrite64, fd, (long)b, (long)n)
WRITE(ssize_t, writev, (int fd, const struct iovec *v, int n), (fd, v, n), SYS_writev, fd, (long)v, n)
WRITE(ssize_t, pwritev, (int fd, const struct iovec *v, int n, off_t o), (fd, v, n, o), SYS_pwritev, fd, (long)v, n)
WRITE(ssize_t, pwritev2, (int fd, const struct iovec *v, int n, off_t o, int f), (fd, v, n, o, f), SYS_pwritev2, fd, (long)v, n)
WRITE(ssize_t, send, (int fd, const void *b, size_t n, int f), (fd, b, n, f), SYS_sendto, fd, (long)b, (long)n)
WRITE(ssize_t, sendto, (int fd, const void *b, size_t n, int f, const struct sockaddr *a, socklen_t l), (fd, b, n, f, a, l), SYS_sendto, fd, (long)b, (long)n, f, (long)a, l)
WRITE(ssize_t, sendmsg, (int fd, const struct msghdr *m, int f), (fd, m, f), SYS_sendmsg, fd, (long)m)
WRITE(int, sendmmsg, (int fd, struct mmsghdr *m, unsigned n, int f), (fd, m, n, f), SYS_sendmmsg, fd, (long)m, n)
WRITE(int, eventfd_write, (int fd, uint64_t v), (fd, v), SYS_eventfd2)
/* The pages go into the pipe, or come out of it: which, only the kernel knows here. */
RS_EXPORT ssize_t vmsplice(int fd, const struct iovec *v, size_t n, unsigned f)
{
	NEED(vmsplice);
	if (RS_LIKELY(!rs_config.all))
		return rs_real.vmsplice(fd, v, n, f);
	KERNEL(SYS_vmsplice, fd, (long)v, (long)n);
	USE(fd);
	KERNEL_READS();
	struct rs_thread *t = rs_fd_thread();
	if (t)
		release(t, fd);
	ssize_t r = rs_real.vmsplice(fd, v, n, f);
	USED(fd, r < 0);
	t = r > 0 ? rs_fd_thread() : NULL;
	if (t)
		acquire(t, fd);
	return r;
}
/* A timer's expirations come after what its thread did before it set it. */
RS_EXPORT int timerfd_settime(int fd, int flags, const struct itimerspec *when, struct itimerspec *was)
{
	NEED(timerfd_settime);
	if (RS_LIKELY(!rs_config.all))
		return rs_real.timerfd_settime(fd, flags, when, was);
	KERNEL(SYS_timerfd_settime, fd, flags, (long)when, (long)was);
	KERNEL_READS();
	struct rs_thread *t = rs_fd_thread();
	if (t)
		release(t, fd);
	int r = rs_real.timerfd_settime(fd, flags, when, was);
	if (r >= 0)
		KERNEL_WROTE(r);
	return r;
}
WRITE(int, shutdown, (int fd, int how), (fd, how), SYS_shutdown)

/* glibc's 64-bit names are the same functions under another name. */
RS_EXPORT ssize_t pread64(int, void *, size_t, off64_t) __attribute__((alias("pread")));
RS_EXPORT ssize_t __pread64_chk(int, void *, size_t, off64_t, size_t) __attribute__((alias("__pread_chk")));
RS_EXPORT ssize_t preadv64(int, const struct iovec *, int, off64_t) __attribute__((alias("preadv")));
RS_EXPORT ssize_t preadv64v2(int, const struct iovec *, int, off64_t, int) __attribute__((alias("preadv2")));
RS_EXPORT ssize_t pwrite64(int, const void *, size_t, off64_t) __attribute__((alias("pwrite")));
RS_EXPORT ssize_t pwritev64(int, const struct iovec *, int, off64_t) __attribute__((alias("pwritev")));
RS_EXPORT ssize_t pwritev64v2(int, const struct iovec *, int, off64_t, int) __attribute__((alias("pwritev2")));

/* A new connection: connect comes before accept, by a channel that both know before they have the connection's own; the new descriptor is a new object. */
static void accepted(int fd, int r)
{
	struct rs_thread *t = rs_fd_thread();
	if (t && r >= 0) {
		int e = errno;
		rs_channel_forget(r);
		struct rs_channel c = rs_channel_called(r);
		RS_EMIT(t, CHANNEL_ACQUIRE, channel_acquire, c.in, c.kind, (uint32_t)fd);
		errno = e;
	}
}

RS_EXPORT int accept(int fd, struct sockaddr *a, socklen_t *l)
{
	NEED(accept);
	if (RS_LIKELY(!rs_config.all))
		return rs_real.accept(fd, a, l);
	KERNEL(SYS_accept, fd, (long)a, (long)l);
	USE(fd);
	int r = rs_real.accept(fd, a, l);
	USED(fd, r < 0);
	accepted(fd, r);
	rs_fd_opened(r, RS_CALLER(), __builtin_frame_address(0));
	KERNEL_WROTE(r);
	return r;
}

RS_EXPORT int accept4(int fd, struct sockaddr *a, socklen_t *l, int flags)
{
	NEED(accept4);
	if (RS_LIKELY(!rs_config.all))
		return rs_real.accept4(fd, a, l, flags);
	KERNEL(SYS_accept4, fd, (long)a, (long)l);
	USE(fd);
	int r = rs_real.accept4(fd, a, l, flags);
	USED(fd, r < 0);
	accepted(fd, r);
	rs_fd_opened(r, RS_CALLER(), __builtin_frame_address(0));
	KERNEL_WROTE(r);
	return r;
}

RS_EXPORT int connect(int fd, const struct sockaddr *a, socklen_t l)
{
	NEED(connect);
	if (RS_LIKELY(!rs_config.all))
		return rs_real.connect(fd, a, l);
	const struct rs_called caller_ = RS_CALLED();
	USE(fd);
	struct rs_thread *t = rs_fd_thread();
	if (t) {
		int e = errno;
		struct rs_channel c = rs_channel_calls(a, l); /* accept may return before connect does */
		RS_EMIT(t, CHANNEL_RELEASE, channel_release, c.out, c.kind, (uint32_t)fd);
		errno = e;
	}
	int r = rs_real.connect(fd, a, l);
	USED(fd, r < 0);
	rs_channel_forget(fd); /* it has a peer now, or another one */
	return r;
}

/* --- copies between descriptors ---------------------------------------------------------------------------------------- */

#define COPY(name, params, args) \
	RS_EXPORT ssize_t name params; \
	RS_EXPORT ssize_t name params \
	{ \
		NEED(name); \
		if (RS_LIKELY(!rs_config.all)) \
			return rs_real.name args; \
		const struct rs_called caller_ = RS_CALLED(); \
		USE(in); \
		USE(out); \
		struct rs_thread *t = rs_fd_thread(); \
		if (t) \
			release(t, out); \
		ssize_t r = rs_real.name args; \
		USED(in, r < 0); \
		USED(out, r < 0); \
		if (t && r >= 0) { \
			int e = errno; \
			acquire(t, in); \
			errno = e; \
		} \
		return r; \
	}
COPY(sendfile, (int out, int in, off_t *o, size_t n), (out, in, o, n))
COPY(splice, (int in, off64_t *oi, int out, off64_t *oo, size_t n, unsigned f), (in, oi, out, oo, n, f))
COPY(tee, (int in, int out, size_t n, unsigned f), (in, out, n, f))
COPY(copy_file_range, (int in, off64_t *oi, int out, off64_t *oo, size_t n, unsigned f), (in, oi, out, oo, n, f))
RS_EXPORT ssize_t sendfile64(int, int, off64_t *, size_t) __attribute__((alias("sendfile")));

/* --- waiting for readiness ----------------------------------------------------------------------------------------------- */

/* What is waited for on many is used, each. */
static void use_all(const struct rs_called *c, const struct pollfd *p, nfds_t n)
{
	struct pollfd some[32];
	for (nfds_t at = 0, k; c->t && rs_called_told() && at < n && at < RS_FD_PLACES; at += k) {
		k = n - at < 32 ? n - at : 32;
		if (rs_kernel_peek(some, (uintptr_t)&p[at], k * sizeof *p) < k * sizeof *p)
			return;
		for (nfds_t i = 0; i < k; i++)
			rs_fd_use(c, some[i].fd);
	}
}

static void used_all(const struct rs_called *c, const struct pollfd *p, nfds_t n, int r)
{
	int e = errno;
	for (nfds_t i = 0; c->t && r > 0 && i < n && i < RS_FD_PLACES; i++) {
		errno = EBADF;
		rs_fd_used(c, p[i].fd, p[i].revents & POLLNVAL);
	}
	errno = e;
}

static int polled(struct pollfd *p, nfds_t n, int r)
{
	struct rs_thread *t = r > 0 ? rs_fd_thread() : NULL;
	if (t) {
		int e = errno;
		for (nfds_t i = 0; i < n; i++)
			if (p[i].revents)
				acquire(t, p[i].fd);
		errno = e;
	}
	return r;
}

#define POLL(name, params, args, ...) \
	RS_EXPORT int name params; \
	RS_EXPORT int name params \
	{ \
		NEED(name); \
		if (RS_LIKELY(!rs_config.all)) \
			return rs_real.name args; \
		KERNEL(__VA_ARGS__); \
		use_all(&caller_, p, n); \
		KERNEL_READS(); \
		int r = rs_real.name args; \
		used_all(&caller_, p, n, r); \
		r = polled(p, n, r); \
		KERNEL_WROTE(r); \
		return r; \
	}
/* As POLL, with a signal mask for the time of the wait. */
#define POLL_MASK(name, before, done, params, args, ...) \
	RS_EXPORT int name params; \
	RS_EXPORT int name params \
	{ \
		NEED(name); \
		sigset_t room_ = {{0}}; \
		m = rs_trap_filter(m, &room_); \
		if (RS_LIKELY(!rs_config.all)) \
			return rs_real.name args; \
		KERNEL(__VA_ARGS__); \
		before; \
		KERNEL_READS(); \
		struct rs_mask_wait w = rs_mask_wait_begin(m); \
		int r = rs_real.name args; \
		rs_mask_wait_end(&w); \
		r = done; \
		KERNEL_WROTE(r); \
		return r; \
	}
POLL(poll, (struct pollfd *p, nfds_t n, int ms), (p, n, ms), SYS_poll, (long)p, (long)n)
POLL(__poll_chk, (struct pollfd *p, nfds_t n, int ms, size_t room), (p, n, ms, room), SYS_poll, (long)p, (long)n)
POLL_MASK(ppoll, use_all(&caller_, p, n), (used_all(&caller_, p, n, r), polled(p, n, r)), (struct pollfd *p, nfds_t n, const struct timespec *t, const sigset_t *m), (p, n, t, m), SYS_ppoll, (long)p, (long)n, (long)t, (long)m)
POLL_MASK(__ppoll_chk, use_all(&caller_, p, n), (used_all(&caller_, p, n, r), polled(p, n, r)), (struct pollfd *p, nfds_t n, const struct timespec *t, const sigset_t *m, size_t room), (p, n, t, m, room), SYS_ppoll, (long)p, (long)n, (long)t, (long)m)

/* failed: of a call that ended in EBADF, which leaves the sets as they were. */
static void use_sets(const struct rs_called *c, int n, fd_set *const sets[3], bool failed)
{
	unsigned long some[RS_FD_PLACES / 64];
	size_t bytes = (size_t)(n < 0 ? 0 : n < RS_FD_PLACES ? (n + 63) / 64 : RS_FD_PLACES / 64) * 8;
	for (int k = 0; k < 3 && c->t && rs_called_told(); k++) {
		if (!sets[k] || rs_kernel_peek(some, (uintptr_t)sets[k], bytes) < bytes)
			continue;
		for (int fd = 0; fd < n && fd < RS_FD_PLACES; fd++)
			if (some[fd / 64] >> fd % 64 & 1) {
				if (failed)
					rs_fd_used(c, fd, true);
				else
					rs_fd_use(c, fd);
			}
	}
}

static void used_sets(const struct rs_called *c, int n, fd_set *const sets[3], int r)
{
	if (r < 0 && errno == EBADF)
		use_sets(c, n, sets, true);
}

static int selected(int n, fd_set *const sets[3], int r)
{
	struct rs_thread *t = r > 0 ? rs_fd_thread() : NULL;
	if (t) {
		int e = errno;
		for (int k = 0; k < 3; k++)
			for (int fd = 0; sets[k] && fd < n; fd++)
				if (((const unsigned long *)sets[k])[fd / 64] >> fd % 64 & 1)
					acquire(t, fd);
		errno = e;
	}
	return r;
}

RS_EXPORT int select(int n, fd_set *rd, fd_set *wr, fd_set *ex, struct timeval *w)
{
	NEED(select);
	if (RS_LIKELY(!rs_config.all))
		return rs_real.select(n, rd, wr, ex, w);
	KERNEL(SYS_select, n, (long)rd, (long)wr, (long)ex);
	fd_set *const sets[3] = {rd, wr, ex};
	use_sets(&caller_, n, sets, false);
	KERNEL_READS();
	int r = rs_real.select(n, rd, wr, ex, w);
	used_sets(&caller_, n, sets, r);
	r = selected(n, sets, r);
	KERNEL_WROTE(r);
	return r;
}

POLL_MASK(pselect, use_sets(&caller_, n, (fd_set *const[]){rd, wr, ex}, false), (used_sets(&caller_, n, (fd_set *const[]){rd, wr, ex}, r), selected(n, (fd_set *const[]){rd, wr, ex}, r)),
	(int n, fd_set *rd, fd_set *wr, fd_set *ex, const struct timespec *t, const sigset_t *m), (n, rd, wr, ex, t, m),
	SYS_pselect6, n, (long)rd, (long)wr, (long)ex, (long)t)

/* epoll tells what was registered with the descriptor, not the descriptor: remembered here, by (epoll, data). A collision forgets. */
#define WATCHED 8192
static struct { uint64_t data; int epoll, fd; } watched[WATCHED];

static unsigned watched_at(int ep, uint64_t data)
{
	return (unsigned)(((uint64_t)(unsigned)ep * 0x9e3779b97f4a7c15ull ^ data * 0xff51afd7ed558ccdull) >> 40) & (WATCHED - 1);
}

RS_EXPORT int epoll_ctl(int ep, int op, int fd, struct epoll_event *ev)
{
	NEED(epoll_ctl);
	if (RS_UNLIKELY(rs_config.all)) {
		KERNEL(SYS_epoll_ctl, ep, op, fd, (long)ev);
		USE(ep);
		USE(fd);
		KERNEL_READS();
		struct rs_thread *t = rs_fd_thread();
		if (t) {
			release(t, ep);
			if (ev && op != EPOLL_CTL_DEL) {
				unsigned i = watched_at(ep, ev->data.u64);
				watched[i].data = ev->data.u64;
				watched[i].epoll = ep;
				watched[i].fd = fd;
			}
		}
		int r = rs_real.epoll_ctl(ep, op, fd, ev);
		USED(ep, r < 0);
		USED(fd, r < 0);
		return r;
	}
	return rs_real.epoll_ctl(ep, op, fd, ev);
}

static int epolled(int ep, const struct epoll_event *ev, int r)
{
	struct rs_thread *t = r > 0 ? rs_fd_thread() : NULL;
	if (t) {
		int e = errno;
		acquire(t, ep);
		for (int k = 0; k < r; k++) {
			unsigned i = watched_at(ep, ev[k].data.u64);
			if (watched[i].epoll == ep && watched[i].data == ev[k].data.u64)
				acquire(t, watched[i].fd);
		}
		errno = e;
	}
	return r;
}

RS_EXPORT int epoll_wait(int ep, struct epoll_event *ev, int n, int ms)
{
	NEED(epoll_wait);
	if (RS_LIKELY(!rs_config.all))
		return rs_real.epoll_wait(ep, ev, n, ms);
	KERNEL(SYS_epoll_wait, ep, (long)ev, n);
	USE(ep);
	int r = rs_real.epoll_wait(ep, ev, n, ms);
	USED(ep, r < 0);
	r = epolled(ep, ev, r);
	KERNEL_WROTE(r);
	return r;
}
POLL_MASK(epoll_pwait, USE(ep), (USED(ep, r < 0), epolled(ep, ev, r)), (int ep, struct epoll_event *ev, int n, int ms, const sigset_t *m), (ep, ev, n, ms, m), SYS_epoll_pwait, ep, (long)ev, n, ms, (long)m)
POLL_MASK(epoll_pwait2, USE(ep), (USED(ep, r < 0), epolled(ep, ev, r)), (int ep, struct epoll_event *ev, int n, const struct timespec *t, const sigset_t *m), (ep, ev, n, t, m), SYS_epoll_pwait2, ep, (long)ev, n, (long)t, (long)m)

/* Other names of the same functions that libc exports: of before POSIX had the name, and for its own libraries. */
RS_ALIAS(__read, read);
RS_ALIAS(__write, write);
RS_ALIAS(__pread64, pread);
RS_ALIAS(__libc_pread, pread);
RS_ALIAS(__pwrite64, pwrite);
RS_ALIAS(__libc_pwrite, pwrite);
RS_ALIAS(__connect, connect);
RS_ALIAS(__send, send);
RS_ALIAS(__recv, recv);
RS_ALIAS(__sendmmsg, sendmmsg);
RS_ALIAS(__poll, poll);
RS_ALIAS(__select, select);
