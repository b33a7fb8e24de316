/* filelock.c: locks of files (flock, those of fcntl that belong to an open file) and of stdio's streams (flockfile) order threads, as channels.
 *
 * Ground rules: all mode only; in filtered mode each function is a jump to the real one behind one branch. They wait in the real call, with nothing held.
 *
 * A lock of a file is one for readers and writers, so what ordered readers alone would be too much order rather than too little. fcntl's other locks belong to the process: its threads are not
 * ordered by them. That stdio takes a stream's lock for itself orders nothing, as all that happens inside libc.
 */
#include "fd.h"
#include "proc.h"
#include <errno.h>
#include <stdio.h>
#include <sys/file.h>

static void release(struct rs_thread *t, uint64_t id, int fd)
{
	RS_EMIT(t, CHANNEL_RELEASE, channel_release, id, RS_CHANNEL_OTHER, (uint32_t)fd);
}

static void acquire(struct rs_thread *t, uint64_t id, int fd)
{
	RS_EMIT(t, CHANNEL_ACQUIRE, channel_acquire, id, RS_CHANNEL_OTHER, (uint32_t)fd);
}

void rs_filelock_before(int fd)
{
	struct rs_thread *t = rs_fd_thread();
	int e = errno;
	if (t)
		release(t, rs_channel_lock(fd), fd);
	errno = e;
}

void rs_filelock_taken(int fd)
{
	struct rs_thread *t = rs_fd_thread();
	int e = errno;
	if (t) {
		rs_channel_locks(fd);
		acquire(t, rs_channel_lock(fd), fd);
	}
	errno = e;
}

RS_EXPORT int flock(int fd, int how)
{
	if (RS_LIKELY(!rs_config.all))
		return RS_REAL(flock)(fd, how);
	rs_filelock_before(fd); /* one lock becomes another by giving up the first */
	int r = RS_REAL(flock)(fd, how);
	if (r == 0 && !(how & LOCK_UN))
		rs_filelock_taken(fd);
	return r;
}

RS_EXPORT void flockfile(FILE *f)
{
	RS_REAL(flockfile)(f);
	struct rs_thread *t = rs_fd_thread();
	if (t)
		acquire(t, rs_channel_stream(f), -1);
}

RS_EXPORT int ftrylockfile(FILE *f)
{
	int r = RS_REAL(ftrylockfile)(f);
	struct rs_thread *t = r == 0 ? rs_fd_thread() : NULL;
	if (t)
		acquire(t, rs_channel_stream(f), -1);
	return r;
}

RS_EXPORT void funlockfile(FILE *f)
{
	struct rs_thread *t = rs_fd_thread();
	if (t)
		release(t, rs_channel_stream(f), -1);
	RS_REAL(funlockfile)(f);
}
RS_ALIAS(_IO_flockfile, flockfile);
RS_ALIAS(_IO_ftrylockfile, ftrylockfile);
RS_ALIAS(_IO_funlockfile, funlockfile);
