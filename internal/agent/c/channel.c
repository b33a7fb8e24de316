/* channel.c: which kernel object a descriptor is, for the events channel-release and channel-acquire.
 *
 * Ground rules: no lock, no allocation; one table by descriptor number, filled at first use by raw system calls. Used in all mode only.
 *
 * Pipes, FIFOs and files are known by device and inode. Inet sockets are known by their two addresses, so that what one end writes is
 * what the other reads; the two ends of a socketpair know each other from the call. Other sockets (Unix ones with a name, those that are
 * not connected) have no identity that both ends share: all of them are one channel, which orders too much. eventfd, timerfd, signalfd and epoll share one
 * anonymous inode in the kernel: they get a number when they are made, copied by dup and fork; one that came in by SCM_RIGHTS or
 * exec is not known. Those of inotify and fanotify are one channel (watch.c); a pidfd is no channel: whoever finds it ready has waited for its process.
 * A descriptor that libc closes for itself (closedir) keeps its old identity until it is made again by a call that
 * we see: that can add an order that was not there, and loses one where the new file orders and the old one did not. stdio opens and closes in our sight (stream.c, popen.c).
 */
#include "called.h"
#include "core.h"
#include "fd.h"
#include "os.h"
#include <netinet/in.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define MAX_FD 4096 /* beyond, the identity is looked up every time */

static struct rs_channel table[MAX_FD];
static uint8_t locked[MAX_FD]; /* rs_channel_locked's */
static uint8_t known[MAX_FD]; /* 1: table[fd] is right, kind 0 included. Written last, read first. */

uint64_t rs_channel_fresh(void)
{
	static uint32_t last;
	uint64_t n = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
	return 1ull << 62 | (uint64_t)(uint32_t)RS_SYS0(SYS_getpid) << 32 | n;
}

static uint64_t mix(uint64_t h, uint64_t x)
{
	h = (h ^ x) * 0x9e3779b97f4a7c15ull;
	return h ^ h >> 29;
}

static uint64_t address(const struct sockaddr_storage *a)
{
	if (a->ss_family == AF_INET) {
		const struct sockaddr_in *in = (const struct sockaddr_in *)a;
		return mix(in->sin_port, in->sin_addr.s_addr);
	}
	const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)a;
	const uint32_t *w = (const uint32_t *)&in->sin6_addr;
	if (!w[0] && !w[1] && w[2] == 0xffff0000) /* ::ffff:a.b.c.d, little-endian: the same peer as its AF_INET form */
		return mix(in->sin6_port, w[3]);
	return mix(mix(in->sin6_port, (uint64_t)w[0] << 32 | w[1]), (uint64_t)w[2] << 32 | w[3]);
}

static bool inet_channel(int fd, struct rs_channel *c)
{
	struct sockaddr_storage me, peer;
	socklen_t n = sizeof me, m = sizeof peer;
	if (RS_SYS3(SYS_getsockname, fd, &me, &n) < 0 || (me.ss_family != AF_INET && me.ss_family != AF_INET6))
		return false;
	if (RS_SYS3(SYS_getpeername, fd, &peer, &m) < 0)
		return false;
	uint64_t a = address(&me), b = address(&peer);
	c->out = mix(mix(1, a), b) >> 2;
	c->in = mix(mix(1, b), a) >> 2;
	return true;
}

static bool is_pidfd(int fd)
{
	static const char old[] = "anon_inode:[pidfd]", new[] = "pidfd:[";
	char path[] = "/proc/thread-self/fd/0000000000", found[sizeof old] = {0};
	char *end = path + sizeof path - 1, *begin = end;
	do
		*--begin = (char)('0' + fd % 10);
	while (fd /= 10);
	rs_os_copy(path + sizeof "/proc/thread-self/fd/" - 1, begin, (size_t)(end - begin + 1));
	RS_SYS3(SYS_readlink, path, found, sizeof found - 1);
	return rs_os_equal(found, old, sizeof old - 1) || rs_os_equal(found, new, sizeof new - 1);
}

static struct rs_channel look(int fd, bool *keep)
{
	struct rs_channel c = {0, 0, 0};
	struct stat st;
	*keep = true;
	if (rs_sandboxed || RS_SYS2(SYS_fstat, fd, &st) < 0) {
		*keep = false;
		return c;
	}
	uint64_t id = mix(mix(0, st.st_dev), st.st_ino) >> 2;
	c.in = c.out = id;
	if (S_ISFIFO(st.st_mode)) {
		c.kind = RS_CHANNEL_PIPE;
	} else if (S_ISREG(st.st_mode)) {
		c.kind = RS_CHANNEL_FILE;
	} else if (S_ISCHR(st.st_mode)) {
		c.kind = RS_CHANNEL_TTY;
	} else if (S_ISSOCK(st.st_mode)) {
		c.kind = RS_CHANNEL_SOCKET;
		*keep = inet_channel(fd, &c); /* before connect there is no peer: look again next time */
		if (!*keep)
			c.in = c.out = RS_CHANNEL_ANY_SOCKET;
	} else {
		c.kind = !(st.st_mode & S_IFMT) && is_pidfd(fd) ? RS_PIDFD : 0; /* another inode without a name, not made in our sight, a directory, a block device */
	}
	return c;
}

uint64_t rs_channel_lock(int fd, bool readers)
{
	struct stat st;
	if (rs_sandboxed || RS_SYS2(SYS_fstat, fd, &st) < 0)
		return RS_CHANNEL_ANY_LOCK;
	return mix(mix(readers ? 7 : 3, st.st_dev), st.st_ino) >> 2;
}

uint64_t rs_channel_stream(const void *file) { return mix(4, (uintptr_t)file) >> 2; }

uint64_t rs_channel_request(const void *block) { return mix(5, (uintptr_t)block) >> 2; }

void rs_channel_locks(int fd, unsigned clear, unsigned set)
{
	if (fd >= 0 && fd < MAX_FD)
		__atomic_store_n(&locked[fd], (uint8_t)((rs_channel_locked(fd) & ~clear) | set), __ATOMIC_RELAXED);
}

unsigned rs_channel_locked(int fd) { return fd >= 0 && fd < MAX_FD ? __atomic_load_n(&locked[fd], __ATOMIC_RELAXED) : 0; }

/* Connections that are being made have no two addresses yet, and a listener may be called by many: what both sides know is the port. All connections to it are one channel. */
static struct rs_channel port(const struct sockaddr_storage *a, size_t n)
{
	struct rs_channel c = rs_channel_named_socket();
	if ((a->ss_family == AF_INET && n >= sizeof(struct sockaddr_in)) || (a->ss_family == AF_INET6 && n >= offsetof(struct sockaddr_in6, sin6_addr)))
		c.in = c.out = mix(6, ((const struct sockaddr_in *)a)->sin_port) >> 2; /* at the same place in both */
	return c;
}

struct rs_channel rs_channel_calls(const void *address, size_t n)
{
	struct sockaddr_storage a = {0};
	return port(&a, rs_kernel_peek(&a, (uintptr_t)address, n < sizeof a ? n : sizeof a));
}

struct rs_channel rs_channel_called(int fd)
{
	struct sockaddr_storage a = {0};
	socklen_t n = sizeof a;
	return port(&a, rs_sandboxed || RS_SYS3(SYS_getsockname, fd, &a, &n) < 0 ? 0 : n);
}

struct rs_channel rs_channel_named_socket(void) { return (struct rs_channel){RS_CHANNEL_ANY_SOCKET, RS_CHANNEL_ANY_SOCKET, RS_CHANNEL_SOCKET}; }

uint64_t rs_channel_sysv(unsigned kind, int id) { return mix(mix(2, kind), (uint64_t)id) >> 2; }

struct rs_channel rs_channel_of(int fd)
{
	if (fd < 0)
		return (struct rs_channel){0, 0, 0};
	if (fd < MAX_FD && __atomic_load_n(&known[fd], __ATOMIC_ACQUIRE))
		return table[fd];
	bool keep;
	struct rs_channel c = look(fd, &keep);
	if (keep)
		rs_channel_set(fd, c);
	return c;
}

void rs_channel_set(int fd, struct rs_channel c)
{
	if (fd < 0 || fd >= MAX_FD)
		return;
	table[fd] = c;
	__atomic_store_n(&known[fd], 1, __ATOMIC_RELEASE);
}

void rs_channel_forget(int fd)
{
	if (fd >= 0 && fd < MAX_FD) {
		__atomic_store_n(&locked[fd], 0, __ATOMIC_RELAXED);
		__atomic_store_n(&known[fd], 0, __ATOMIC_RELEASE);
	}
}

void rs_channel_forget_range(unsigned lo, unsigned hi)
{
	for (unsigned fd = lo; fd <= hi && fd < MAX_FD; fd++)
		rs_channel_forget((int)fd);
}

void rs_channel_copy(int from, int to)
{
	if (from >= 0 && from < MAX_FD && __atomic_load_n(&known[from], __ATOMIC_ACQUIRE))
		rs_channel_set(to, table[from]);
	else
		rs_channel_forget(to);
	rs_channel_locks(from, 0, RS_LOCKS_COPIED);
	rs_channel_locks(to, ~0u, rs_channel_locked(from) | RS_LOCKS_COPIED);
}
