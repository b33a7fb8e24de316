/* filelock.c: locks of files (flock, those of fcntl that belong to an open file) and of stdio's streams (flockfile) order threads, as channels.
 *
 * Ground rules: all mode only; in filtered mode each function is a jump to the real one behind one branch. They wait in the real call, with nothing held.
 *
 * A lock of a file is one for readers and writers: who had it to write tells all, who had it to read tells the next writer alone. As which it was had is known by the descriptor; where it is not (one that came from elsewhere, or that was copied, so that another one
 * may have changed it) what is given up counts as a writer's, which is too much order rather than too little. fcntl's other locks belong to the process: its threads are not
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

void rs_filelock_before(int fd, unsigned of)
{
	struct rs_thread *t = rs_fd_thread();
	unsigned had = rs_channel_locked(fd), is = had & of;
	bool known = had & (of & RS_FLOCK ? RS_FLOCK_KNOWN : RS_OFD_KNOWN) && !(had & RS_LOCKS_COPIED);
	if (!t || (known && !is))
		return;
	bool read = is && !(is & (RS_FLOCK_EXCLUSIVE | RS_OFD_EXCLUSIVE)) && !(had & RS_LOCKS_COPIED);
	int e = errno;
	release(t, rs_channel_lock(fd, read), fd);
	errno = e;
}

void rs_filelock_taken(int fd, unsigned how)
{
	struct rs_thread *t = rs_fd_thread();
	int e = errno;
	if (t) {
		if (how & RS_FLOCK)
			rs_channel_locks(fd, RS_FLOCK, RS_FLOCK_KNOWN | how);
		else
			rs_channel_locks(fd, 0, how); /* other ranges may be locked otherwise */
		acquire(t, rs_channel_lock(fd, false), fd);
		if (how & (RS_FLOCK_EXCLUSIVE | RS_OFD_EXCLUSIVE))
			acquire(t, rs_channel_lock(fd, true), fd);
	}
	errno = e;
}

RS_EXPORT int flock(int fd, int how)
{
	if (RS_LIKELY(!rs_config.all))
		return RS_REAL(flock)(fd, how);
	bool had = rs_channel_locked(fd) & RS_FLOCK;
	rs_filelock_before(fd, RS_FLOCK); /* one lock becomes another by giving up the first */
	int r = RS_REAL(flock)(fd, how);
	if (r == 0 && !(how & LOCK_UN))
		rs_filelock_taken(fd, how & LOCK_SH ? RS_FLOCK_SHARED : RS_FLOCK_EXCLUSIVE);
	else if (r == 0 || had) /* given up, or lost to another one */
		rs_channel_locks(fd, RS_FLOCK | RS_FLOCK_KNOWN, r == 0 ? RS_FLOCK_KNOWN : 0);
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
