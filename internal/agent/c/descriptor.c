/* descriptor.c: for the race detector descriptors are bytes of memory that does not exist (RS_FD_PLACE): a use reads its descriptor's, a close writes it (docs/decisions.md, 44).
 *
 * A number is given again, often by calls that are not seen (stdio's, libc's own, other libraries' system calls). So a use counts while the last open of the number was seen; else only if there was no such descriptor
 * when it was made. A close finds out whether the descriptor is still the one that was opened. Whatever is in doubt makes a number unknown until it is opened in our sight.
 *
 * Ground rules: no lock, no allocation; a byte and a word by number; errno stays. */
#include "called.h"
#include "fd.h"
#include "os.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

enum { UNKNOWN, OPEN, CLOSED };
static uint8_t states[RS_FD_PLACES];
static uint64_t identities[RS_FD_PLACES]; /* of those that are OPEN; 0: not known */
static bool off;                          /* not all threads have the same descriptors */

static bool is_number(int fd) { return fd >= 0 && fd < RS_FD_PLACES; }
static unsigned state_of(int fd) { return __atomic_load_n(&states[fd], __ATOMIC_ACQUIRE); }
static void set_state(int fd, unsigned s) { __atomic_store_n(&states[fd], (uint8_t)s, __ATOMIC_RELEASE); }
static const void *place_of(int fd) { return (const void *)(RS_FD_PLACE + 8ull * (unsigned)fd); }

static uint64_t identity(int fd)
{
	struct stat st;
	if (RS_SYS2(SYS_fstat, fd, &st) < 0)
		return 0;
	return ((uint64_t)st.st_dev * 0x9e3779b97f4a7c15ull ^ (uint64_t)st.st_ino * 0xff51afd7ed558ccdull ^ st.st_mode >> 12) | 1;
}

static bool exists(int fd) { return RS_SYS3(SYS_fcntl, fd, F_GETFD, 0) >= 0; }

void rs_fd_shared_no_more(void)
{
	if (!rs_in_vfork())
		__atomic_store_n(&off, true, __ATOMIC_RELEASE);
}

void rs_fd_unknown(int fd)
{
	if (rs_called_told() && is_number(fd) && !rs_in_vfork())
		set_state(fd, UNKNOWN);
}

void rs_fd_opened(int fd, uintptr_t pc, void *fp)
{
	if (!rs_called_told() || !is_number(fd))
		return;
	struct rs_thread *t = rs_fd_thread();
	if (!t || rs_sandboxed || off) {
		rs_fd_unknown(fd);
		return;
	}
	int e = errno;
	uint32_t stack = rs_config.stack_depth ? rs_stack_from(t, pc, fp, rs_config.stack_depth) : 0;
	RS_EMIT(t, FD_OPEN, fd_open, fd, stack);
	identities[fd] = identity(fd);
	set_state(fd, OPEN);
	errno = e;
}

/* Of a descriptor that another takes the place of (dup2): no moment is without one, so that is no close of it. */
void rs_fd_replaced(int fd, uintptr_t pc, void *fp)
{
	if (rs_called_told() && is_number(fd) && !off && state_of(fd) == OPEN)
		identities[fd] = rs_in_vfork() || rs_sandboxed ? 0 : identity(fd);
	else
		rs_fd_opened(fd, pc, fp);
}

void rs_fd_use(const struct rs_called *c, int fd)
{
	if (c->t && is_number(fd) && !off && state_of(fd) == OPEN)
		rs_called_read(c, place_of(fd), 1);
}

void rs_fd_used(const struct rs_called *c, int fd, bool failed)
{
	uint8_t was = CLOSED;
	if (!c->t || !is_number(fd) || off || rs_sandboxed || state_of(fd) != CLOSED)
		return;
	if (!failed) /* opened unseen */
		__atomic_compare_exchange_n(&states[fd], &was, UNKNOWN, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
	else if (errno == EBADF && !exists(fd)) /* a descriptor that may not be written to gives EBADF, too */
		rs_called_read(c, place_of(fd), 1);
}

void rs_fd_close(const struct rs_called *c, int fd)
{
	if (!rs_called_told() || !is_number(fd))
		return;
	if (!c->t || rs_sandboxed || off) {
		rs_fd_unknown(fd);
		return;
	}
	unsigned s = state_of(fd);
	if (!exists(fd)) {
		if (s == CLOSED) /* once more */
			rs_called_write(c, place_of(fd), 1);
		else
			set_state(fd, UNKNOWN);
		return;
	}
	uint64_t id = identities[fd];
	if (s != OPEN || (id && id != identity(fd))) /* opened unseen: what is known is of another one */
		RS_EMIT(c->t, FD_OPEN, fd_open, fd, 0);
	rs_called_write(c, place_of(fd), 1);
	set_state(fd, CLOSED); /* before it is: another thread's open comes after that */
}

void rs_fd_close_range(const struct rs_called *c, unsigned lo, unsigned hi)
{
	for (unsigned fd = lo; rs_called_told() && fd <= hi && fd < RS_FD_PLACES; fd++)
		if (state_of((int)fd) == OPEN)
			rs_fd_close(c, (int)fd);
		else
			rs_fd_unknown((int)fd);
}
