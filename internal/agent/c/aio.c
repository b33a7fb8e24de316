/* aio.c: POSIX's asynchronous I/O (aio(7)), which threads of libc's own make: their reads and writes are not seen. Where all accesses are told.
 *
 * A request is a channel, named by its control block: to hand it in releases it, to find it done acquires it, and the channel of its descriptor as well, since what was read may have come from another thread. To hand it in
 * releases the descriptor's channel, too: whoever reads what was written comes after. The request's memory counts as accessed by whoever hands it in, before that: what is written is read, and the whole buffer that is read into is
 * written, since nobody may touch it until the end (aio_read(3)). So another thread's access that nothing orders behind the end is a race; one of the thread that handed it in is not found, though it may come too early.
 *
 * A signal that tells the end and a thread that is made for it come after all that was done so far, by the detectors' own rules.
 *
 * Ground rules: as fd.c's; no lock; errno, results and cancellation are the real function's. A control block is read where libc reads it, before the call that hands it in.
 */
#include "called.h"
#include "fd.h"
#include <errno.h>
#undef __USE_LARGEFILE64 /* aio_NAME64 is the same function, as offsets have 64 bits, but aio.h has another type for it */
#include <aio.h>

/* What a descriptor was when a request of it was handed in: it may be closed before the end is seen. By control block; of one whose place another took it is asked anew. `of` is written last and read on both sides. */
enum { KNOWN = 1024 };
static struct { const struct aiocb *of; uint64_t in; int32_t fd, kind; } known[KNOWN];

static unsigned place(const struct aiocb *cb) { return (unsigned)((uintptr_t)cb * 0x9e3779b97f4a7c15ull >> 54) & (KNOWN - 1); }

/* Terminals and other devices order nothing (stream.c). */
static struct rs_channel channel(int fd)
{
	struct rs_channel c = rs_channel_of(fd);
	if (!rs_channel_orders(c) || c.kind == RS_CHANNEL_TTY)
		c.kind = 0;
	return c;
}

static void handed_in(const struct rs_called *c, const struct aiocb *cb, int what)
{
	struct rs_thread *t = rs_fd_thread();
	if (!t)
		return;
	int e = errno, fd = cb->aio_fildes;
	rs_called_read(c, cb, sizeof *cb);
	if (what == LIO_READ)
		rs_called_write(c, (const void *)(uintptr_t)cb->aio_buf, cb->aio_nbytes);
	else if (what == LIO_WRITE)
		rs_called_read(c, (const void *)(uintptr_t)cb->aio_buf, cb->aio_nbytes);
	struct rs_channel ch = channel(fd);
	unsigned i = place(cb);
	__atomic_store_n(&known[i].of, NULL, __ATOMIC_RELEASE);
	known[i].in = ch.in;
	known[i].fd = fd;
	known[i].kind = ch.kind;
	__atomic_store_n(&known[i].of, cb, __ATOMIC_RELEASE);
	rs_watch_changes();
	RS_EMIT(t, CHANNEL_RELEASE, channel_release, rs_channel_request(cb), RS_CHANNEL_OTHER, (uint32_t)fd);
	if (ch.kind && what != LIO_READ)
		RS_EMIT(t, CHANNEL_RELEASE, channel_release, ch.out, ch.kind, (uint32_t)fd);
	errno = e;
}

/* What was kept of the request in place i. NULL: nothing. */
static const struct aiocb *kept(unsigned i, struct rs_channel *ch, int *fd)
{
	const struct aiocb *of = __atomic_load_n(&known[i].of, __ATOMIC_ACQUIRE);
	*ch = (struct rs_channel){.in = known[i].in, .kind = (uint8_t)known[i].kind};
	*fd = known[i].fd;
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n(&known[i].of, __ATOMIC_RELAXED) == of ? of : NULL;
}

static void acquire(struct rs_thread *t, const struct aiocb *cb, struct rs_channel ch, int fd)
{
	RS_EMIT(t, CHANNEL_ACQUIRE, channel_acquire, rs_channel_request(cb), RS_CHANNEL_OTHER, (uint32_t)fd);
	if (ch.kind)
		RS_EMIT(t, CHANNEL_ACQUIRE, channel_acquire, ch.in, ch.kind, (uint32_t)fd);
}

static void done(const struct aiocb *cb)
{
	struct rs_thread *t = rs_fd_thread();
	struct rs_channel ch;
	int fd, e = errno;
	if (!t)
		return;
	if (kept(place(cb), &ch, &fd) != cb) {
		fd = cb->aio_fildes;
		ch = channel(fd);
	}
	acquire(t, cb, ch, fd);
	errno = e;
}

/* The control blocks may be gone by now. */
static void done_by(int fd)
{
	struct rs_thread *t = rs_fd_thread();
	for (unsigned i = 0; t && i < KNOWN; i++) {
		struct rs_channel ch;
		int of;
		const struct aiocb *cb = kept(i, &ch, &of);
		if (cb && of == fd)
			acquire(t, cb, ch, fd);
	}
}

#define HANDS_IN(name, what) \
	RS_TELLS(int, name, (struct aiocb *cb)) \
	{ \
		RS_CALL(name); \
		handed_in(&c, cb, what); \
		return real_##name(cb); \
	}
HANDS_IN(aio_read, LIO_READ)
HANDS_IN(aio_read64, LIO_READ)
HANDS_IN(aio_write, LIO_WRITE)
HANDS_IN(aio_write64, LIO_WRITE)

#define SYNC(name) \
	RS_TELLS(int, name, (int how, struct aiocb *cb)) \
	{ \
		RS_CALL(name); \
		handed_in(&c, cb, LIO_NOP); \
		return real_##name(how, cb); \
	}
SYNC(aio_fsync)
SYNC(aio_fsync64)

#define ERROR(name) \
	RS_TELLS(int, name, (const struct aiocb *cb)) \
	{ \
		RS_NEED(name); \
		int r = real_##name(cb); \
		if (r != EINPROGRESS) \
			done(cb); \
		return r; \
	}
ERROR(aio_error)
ERROR(aio_error64)

#define RETURN(name) \
	RS_TELLS(ssize_t, name, (struct aiocb *cb)) \
	{ \
		RS_NEED(name); \
		ssize_t r = real_##name(cb); \
		done(cb); \
		return r; \
	}
RETURN(aio_return)
RETURN(aio_return64)

static void done_of(const struct aiocb *const *list, int n)
{
	for (int i = 0; i < n; i++)
		if (list[i] && real_aio_error(list[i]) != EINPROGRESS)
			done(list[i]);
}

#define SUSPEND(name) \
	RS_TELLS(int, name, (const struct aiocb *const list[], int n, const struct timespec *t)) \
	{ \
		RS_CALL(name); \
		rs_called_read(&c, list, n > 0 ? (size_t)n * sizeof *list : 0); \
		int r = real_##name(list, n, t); \
		if (r == 0) \
			done_of(list, n); \
		return r; \
	}
SUSPEND(aio_suspend)
SUSPEND(aio_suspend64)

#define LIST(name) \
	RS_TELLS(int, name, (int mode, struct aiocb *const list[], int n, struct sigevent *s)) \
	{ \
		RS_CALL(name); \
		rs_called_read(&c, list, n > 0 ? (size_t)n * sizeof *list : 0); \
		for (int i = 0; i < n && c.t; i++) \
			if (list[i] && list[i]->aio_lio_opcode != LIO_NOP) \
				handed_in(&c, list[i], list[i]->aio_lio_opcode); \
		int r = real_##name(mode, list, n, s); \
		if (mode == LIO_WAIT && rs_fd_thread()) { \
			int e = errno; \
			for (int i = 0; i < n; i++) \
				if (list[i] && list[i]->aio_lio_opcode != LIO_NOP && real_aio_error(list[i]) != EINPROGRESS) \
					done(list[i]); \
			errno = e; \
		} \
		return r; \
	}
LIST(lio_listio)
LIST(lio_listio64)

/* Whoever is told that requests are done, or will not be made, has what was before they were handed in. */
#define CANCEL(name) \
	RS_TELLS(int, name, (int fd, struct aiocb *cb)) \
	{ \
		RS_NEED(name); \
		int r = real_##name(fd, cb); \
		if (r == AIO_CANCELED || r == AIO_ALLDONE) { \
			if (cb) \
				done(cb); \
			else \
				done_by(fd); \
		} \
		return r; \
	}
CANCEL(aio_cancel)
CANCEL(aio_cancel64)
