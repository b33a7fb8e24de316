/* session.c: the messages on the session's socket: what layout.go says of Hello, Welcome, Tables. Called with signals blocked. No descriptor
 * outlives the call that made it, but those handed to the caller. */
#include "core.h"
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

/* How long we wait for an answer other than unwind tables: long enough for a machine that is far behind, since a process without an
 * answer is not watched. */
#define ANSWER_MS 10000

char rs_session_dir[128];

static void set_time(int sock, int option, unsigned ms)
{
	struct timeval tv = {.tv_sec = ms / 1000, .tv_usec = (long)(ms % 1000) * 1000};
	RS_SYS5(SYS_setsockopt, sock, SOL_SOCKET, option, &tv, sizeof tv);
}

static long connect_to(long s, const struct sockaddr_un *a, size_t bytes)
{
	long r;
	do
		r = RS_SYS3(SYS_connect, s, a, bytes);
	while (r == -EINTR);
	return r == -EISCONN ? 0 : r;
}

/* Out of a chroot or a mount namespace the socket's name leads nowhere. Its twin in the abstract namespace is there all the same, and takes messages
 * of those who have the control page. */
long rs_session_connect(void)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX}, twin = a;
	size_t n = rs_os_length(rs_session_dir);
	if (n + sizeof "/sock" + 1 > sizeof a.sun_path)
		return -ENAMETOOLONG;
	rs_os_copy(a.sun_path, rs_session_dir, n);
	rs_os_copy(a.sun_path + n, "/sock", sizeof "/sock");
	rs_os_copy(twin.sun_path + 1, a.sun_path, n + sizeof "/sock" - 1);
	long s = RS_SYS3(SYS_socket, AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (s < 0)
		return s;
	set_time((int)s, SO_SNDTIMEO, ANSWER_MS);
	set_time((int)s, SO_RCVTIMEO, ANSWER_MS);
	long r = connect_to(s, &a, sizeof a);
	if (r < 0 && rs_ctl && connect_to(s, &twin, offsetof(struct sockaddr_un, sun_path) + 1 + n + sizeof "/sock" - 1) == 0)
		r = 0;
	if (r < 0) {
		RS_SYS1(SYS_close, s);
		return r;
	}
	return s;
}

/* One message of two parts, with a descriptor if fd ≥ 0. */
static long send_message(int sock, const struct rs_hello *h, const void *body, size_t n, int fd)
{
	struct iovec iov[2] = {{(void *)h, sizeof *h}, {(void *)body, n}};
	union { struct cmsghdr h; char room[CMSG_SPACE(sizeof(int))]; } c;
	struct msghdr m = {.msg_iov = iov, .msg_iovlen = n ? 2 : 1};
	if (fd >= 0) {
		rs_os_clear(&c, sizeof c);
		m.msg_control = &c;
		m.msg_controllen = sizeof c.room;
		c.h.cmsg_len = CMSG_LEN(sizeof(int));
		c.h.cmsg_level = SOL_SOCKET;
		c.h.cmsg_type = SCM_RIGHTS;
		rs_os_copy(CMSG_DATA(&c.h), &fd, sizeof fd);
	}
	long r;
	do
		r = RS_SYS3(SYS_sendmsg, sock, &m, MSG_NOSIGNAL);
	while (r == -EINTR);
	return r < 0 ? r : r == (long)(sizeof *h + n) ? 0 : -EPROTO;
}

/* One message of exactly n bytes and at most max ≤ 64 descriptors, which become the caller's. Returns their number. */
static long receive(int sock, void *p, size_t n, int *fds, unsigned max)
{
	union { struct cmsghdr h; char room[CMSG_SPACE(64 * sizeof(int))]; } c;
	struct iovec iov = {p, n};
	struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = CMSG_SPACE(max * sizeof(int))};
	long r;
	do
		r = RS_SYS3(SYS_recvmsg, sock, &m, MSG_CMSG_CLOEXEC);
	while (r == -EINTR);
	if (r < 0)
		return r;
	long got = 0;
	if (m.msg_controllen >= sizeof c.h && c.h.cmsg_level == SOL_SOCKET && c.h.cmsg_type == SCM_RIGHTS) {
		got = (long)((c.h.cmsg_len - CMSG_LEN(0)) / sizeof(int));
		rs_os_copy(fds, CMSG_DATA(&c.h), (size_t)got * sizeof(int));
	}
	/* MSG_CTRUNC: the process is at its limit of descriptors; those that were made are ours to close. */
	if (r == (long)n && !(m.msg_flags & MSG_TRUNC) && !(m.msg_flags & MSG_CTRUNC))
		return got;
	for (long i = 0; i < got; i++)
		RS_SYS1(SYS_close, fds[i]);
	return r == 0 ? -ECONNRESET : m.msg_flags & MSG_CTRUNC ? -EMFILE : -EPROTO;
}

static struct rs_hello hello(uint32_t kind, uint32_t count)
{
	return (struct rs_hello){.magic = RS_MAGIC, .version = RS_WIRE_VERSION, .kind = kind, .pid = rs_process.pid, .count = count,
				 .process = rs_process.id, .token = rs_ctl ? rs_ctl->token : 0};
}

long rs_session_hello(int sock)
{
	struct rs_hello h = hello(1, 0);
	return send_message(sock, &h, NULL, 0, -1);
}

long rs_session_welcome(int sock, struct rs_welcome *w, int *ctl)
{
	int fds[1] = {-1};
	long r = receive(sock, w, sizeof *w, fds, 1);
	if (r < 0)
		return r;
	if (r == 1 && w->magic == RS_MAGIC && w->version == RS_WIRE_VERSION) {
		*ctl = fds[0];
		return 0;
	}
	if (r == 1)
		RS_SYS1(SYS_close, fds[0]);
	return -EPROTO;
}

long rs_session_region(int sock, int memfd)
{
	struct rs_hello h = hello(2, 0);
	struct rs_tables t;
	long r = send_message(sock, &h, NULL, 0, memfd);
	if (r < 0 || (r = receive(sock, &t, sizeof t, NULL, 0)) < 0)
		return r;
	return t.magic == RS_MAGIC && t.has == 1 ? 0 : -EPROTO;
}

long rs_session_ask_tables(int sock, const struct rs_module_request *req, unsigned n)
{
	struct rs_hello h = hello(3, n);
	return send_message(sock, &h, req, n * sizeof *req, -1);
}

/* Their files, -1 where there is none. */
long rs_session_tables(int sock, unsigned n, int *fds)
{
	struct rs_tables t;
	int got[64];
	set_time(sock, SO_RCVTIMEO, rs_config.table_wait_ms);
	long r = receive(sock, &t, sizeof t, got, 64);
	set_time(sock, SO_RCVTIMEO, ANSWER_MS); /* for what else is asked there */
	if (r < 0)
		return r;
	long next = 0;
	for (unsigned i = 0; i < n; i++)
		fds[i] = t.magic == RS_MAGIC && t.has >> i & 1 && next < r ? got[next++] : -1;
	while (next < r)
		RS_SYS1(SYS_close, got[next++]);
	return 0;
}

/* The page and the shared memory of a process that is patched; -ENOENT: it is not to be. */
long rs_session_patch(int sock, int fds[2])
{
	struct rs_hello h = hello(4, 0);
	struct rs_tables t;
	int got[2] = {-1, -1};
	long r = send_message(sock, &h, NULL, 0, -1);
	if (r < 0 || (r = receive(sock, &t, sizeof t, got, 2)) < 0)
		return r;
	if (r == 2 && t.magic == RS_MAGIC && t.has == 3) {
		fds[0] = got[0];
		fds[1] = got[1];
		return 0;
	}
	while (r > 0)
		RS_SYS1(SYS_close, got[--r]);
	return -ENOENT;
}
