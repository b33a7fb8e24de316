/* kernel.c: what memory system calls read and write: one table, by number. They are accesses of the calling thread (called.h).
 *
 * Nothing here may fault where the kernel gives EFAULT: what leads to other memory (iovec, msghdr, strings) is read by the kernel for us before the call; behind one that succeeded it is known
 * to be readable. */
#include "called.h"
#include "core.h"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/times.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/utsname.h>

/* What an argument points to. SIZED: `size` bytes. COUNTED: `size` bytes for each of what argument `by` counts. RETURNED: for each of what the call returns. STRING: up to its end. VECTOR: iovecs,
 * as many as argument `by` says, and what they point to, of which at most as many bytes are written as the call returns. MESSAGE: a msghdr. MESSAGES: mmsghdrs, of which `by` counts those that
 * are sent, the result those that came. LENGTH: as many bytes as the socklen_t says to which argument `by` points. BITS: a bit for each of what argument `by` counts, by
 * whole words. POLLFDS: `by` counts them. */
enum what { NOTHING, SIZED, COUNTED, RETURNED, STRING, VECTOR, MESSAGE, MESSAGES, LENGTH, BITS, POLLFDS };
enum { READS = 1, WRITES = 2, BOTH = 3 };
enum { MOST = 4, ROWS = 512, MOST_BYTES = 0x7ffff000 }; /* of one call: MAX_RW_COUNT */
struct memory { uint8_t how, what, arg, by; uint16_t size; };

#define IN(arg, size) {READS, SIZED, arg, 0, size}
#define OUT(arg, size) {WRITES, SIZED, arg, 0, size}
#define IN_EACH(arg, by, size) {READS, COUNTED, arg, by, size}
#define OUT_EACH(arg, size) {WRITES, RETURNED, arg, 0, size}
#define PATH(arg) {READS, STRING, arg, 0, 0}
#define FDS(arg) {BOTH, BITS, arg, 0, 0}
#define POLLED(arg, by) {BOTH, POLLFDS, arg, by, 0}
#define ADDRESS(arg, by) {WRITES, LENGTH, arg, by, 0}
static const struct memory calls[ROWS][MOST] = {
	[SYS_read] = {OUT_EACH(1, 1)},
	[SYS_pread64] = {OUT_EACH(1, 1)},
	[SYS_readv] = {{WRITES, VECTOR, 1, 2, 0}},
	[SYS_preadv] = {{WRITES, VECTOR, 1, 2, 0}},
	[SYS_preadv2] = {{WRITES, VECTOR, 1, 2, 0}},
	[SYS_write] = {IN_EACH(1, 2, 1)},
	[SYS_pwrite64] = {IN_EACH(1, 2, 1)},
	[SYS_writev] = {{READS, VECTOR, 1, 2, 0}},
	[SYS_pwritev] = {{READS, VECTOR, 1, 2, 0}},
	[SYS_pwritev2] = {{READS, VECTOR, 1, 2, 0}},
	[SYS_vmsplice] = {{READS, VECTOR, 1, 2, 0}},
	[SYS_recvfrom] = {OUT_EACH(1, 1), ADDRESS(4, 5)},
	[SYS_sendto] = {IN_EACH(1, 2, 1), IN_EACH(4, 5, 1)},
	[SYS_recvmsg] = {{WRITES, MESSAGE, 1, 0, 0}},
	[SYS_sendmsg] = {{READS, MESSAGE, 1, 0, 0}},
	[SYS_recvmmsg] = {{WRITES, MESSAGES, 1, 2, 0}},
	[SYS_sendmmsg] = {{READS, MESSAGES, 1, 2, 0}},
	[SYS_mq_timedsend] = {IN_EACH(1, 2, 1)},
	[SYS_mq_timedreceive] = {OUT_EACH(1, 1), OUT(3, sizeof(unsigned))},
	[SYS_accept] = {ADDRESS(1, 2)},
	[SYS_accept4] = {ADDRESS(1, 2)},
	[SYS_getsockname] = {ADDRESS(1, 2)},
	[SYS_getpeername] = {ADDRESS(1, 2)},
	[SYS_getsockopt] = {ADDRESS(3, 4)},
	[SYS_setsockopt] = {IN_EACH(3, 4, 1)},
	[SYS_connect] = {IN_EACH(1, 2, 1)},
	[SYS_bind] = {IN_EACH(1, 2, 1)},
	[SYS_socketpair] = {OUT(3, 2 * sizeof(int))},
	[SYS_pipe] = {OUT(0, 2 * sizeof(int))},
	[SYS_pipe2] = {OUT(0, 2 * sizeof(int))},
	[SYS_poll] = {POLLED(0, 1)},
	[SYS_ppoll] = {POLLED(0, 1), IN(2, sizeof(struct timespec)), IN(3, 8)},
	[SYS_select] = {FDS(1), FDS(2), FDS(3)},
	[SYS_pselect6] = {FDS(1), FDS(2), FDS(3), IN(4, sizeof(struct timespec))},
	[SYS_epoll_ctl] = {IN(3, sizeof(struct epoll_event))},
	[SYS_epoll_wait] = {OUT_EACH(1, sizeof(struct epoll_event))},
	[SYS_epoll_pwait] = {OUT_EACH(1, sizeof(struct epoll_event)), IN(4, 8)},
	[SYS_epoll_pwait2] = {OUT_EACH(1, sizeof(struct epoll_event)), IN(3, sizeof(struct timespec)), IN(4, 8)},
	[SYS_eventfd] = {OUT(1, sizeof(uint64_t))}, /* which takes no memory: it is the row of eventfd_read, which returns 0 */
	[SYS_sendfile] = {{BOTH, SIZED, 2, 0, sizeof(off_t)}},
	[SYS_splice] = {{BOTH, SIZED, 1, 0, sizeof(off_t)}, {BOTH, SIZED, 3, 0, sizeof(off_t)}},
	[SYS_copy_file_range] = {{BOTH, SIZED, 1, 0, sizeof(off_t)}, {BOTH, SIZED, 3, 0, sizeof(off_t)}},
	[SYS_stat] = {PATH(0), OUT(1, sizeof(struct stat))},
	[SYS_lstat] = {PATH(0), OUT(1, sizeof(struct stat))},
	[SYS_fstat] = {OUT(1, sizeof(struct stat))},
	[SYS_newfstatat] = {PATH(1), OUT(2, sizeof(struct stat))},
	[SYS_statx] = {PATH(1), OUT(4, sizeof(struct statx))},
	[SYS_getcwd] = {OUT_EACH(0, 1)},
	[SYS_readlink] = {PATH(0), OUT_EACH(1, 1)},
	[SYS_readlinkat] = {PATH(1), OUT_EACH(2, 1)},
	[SYS_getdents64] = {OUT_EACH(1, 1)},
	[SYS_getrandom] = {OUT_EACH(0, 1)},
	[SYS_uname] = {OUT(0, sizeof(struct utsname))},
	[SYS_sysinfo] = {OUT(0, sizeof(struct sysinfo))},
	[SYS_getrusage] = {OUT(1, sizeof(struct rusage))},
	[SYS_times] = {OUT(0, sizeof(struct tms))},
	[SYS_gettimeofday] = {OUT(0, sizeof(struct timeval))},
	[SYS_clock_gettime] = {OUT(1, sizeof(struct timespec))},
	[SYS_clock_getres] = {OUT(1, sizeof(struct timespec))},
	[SYS_clock_settime] = {IN(1, sizeof(struct timespec))},
	[SYS_nanosleep] = {IN(0, sizeof(struct timespec))},
	[SYS_clock_nanosleep] = {IN(2, sizeof(struct timespec))},
	[SYS_getitimer] = {OUT(1, 2 * sizeof(struct timeval))},
	[SYS_setitimer] = {IN(1, 2 * sizeof(struct timeval)), OUT(2, 2 * sizeof(struct timeval))},
	[SYS_timerfd_settime] = {IN(2, 2 * sizeof(struct timespec)), OUT(3, 2 * sizeof(struct timespec))},
	[SYS_timerfd_gettime] = {OUT(1, 2 * sizeof(struct timespec))},
	[SYS_getrlimit] = {OUT(1, sizeof(struct rlimit))},
	[SYS_setrlimit] = {IN(1, sizeof(struct rlimit))},
	[SYS_prlimit64] = {IN(2, sizeof(struct rlimit)), OUT(3, sizeof(struct rlimit))},
	[SYS_open] = {PATH(0)},
	[SYS_openat] = {PATH(1)},
	[SYS_creat] = {PATH(0)},
	[SYS_access] = {PATH(0)},
	[SYS_faccessat] = {PATH(1)},
	[SYS_unlink] = {PATH(0)},
	[SYS_unlinkat] = {PATH(1)},
	[SYS_rename] = {PATH(0), PATH(1)},
	[SYS_renameat] = {PATH(1), PATH(3)},
	[SYS_mkdir] = {PATH(0)},
	[SYS_mkdirat] = {PATH(1)},
	[SYS_rmdir] = {PATH(0)},
	[SYS_chdir] = {PATH(0)},
	[SYS_link] = {PATH(0), PATH(1)},
	[SYS_symlink] = {PATH(0), PATH(1)},
	[SYS_chmod] = {PATH(0)},
	[SYS_truncate] = {PATH(0)},
};

/* Copies what is there of n bytes at p, which need not be mapped. */
static size_t peek(void *to, uintptr_t p, size_t n)
{
	struct iovec mine = {to, n}, there = {(void *)p, n};
	if (rs_sandboxed)
		return 0;
	long r = RS_SYS6(SYS_process_vm_readv, rs_os_pid(), &mine, 1, &there, 1, 0);
	return r < 0 ? 0 : (size_t)r;
}

static void vector(const struct rs_called *c, const struct iovec *v, size_t n, unsigned how, size_t bytes)
{
	enum { IOV_MAX = 1024, AT_A_TIME = 16 };
	struct iovec some[AT_A_TIME];
	if (n > IOV_MAX)
		return;
	while (n > 0 && bytes > 0) {
		size_t k = n < AT_A_TIME ? n : AT_A_TIME;
		if (peek(some, (uintptr_t)v, k * sizeof *v) < k * sizeof *v)
			return;
		if (how == READS)
			rs_called_read(c, v, k * sizeof *v);
		for (size_t i = 0; i < k && bytes > 0; i++) {
			size_t len = some[i].iov_len < bytes ? some[i].iov_len : bytes;
			if (how == READS)
				rs_called_read(c, some[i].iov_base, len);
			else
				rs_called_write(c, some[i].iov_base, len);
			bytes -= len;
		}
		v += k;
		n -= k;
	}
}

static void message(const struct rs_called *c, const struct msghdr *p, unsigned how, size_t bytes)
{
	struct msghdr m;
	if (peek(&m, (uintptr_t)p, sizeof m) < sizeof m)
		return;
	if (how == READS) {
		rs_called_read(c, p, sizeof m);
		rs_called_read(c, m.msg_name, m.msg_name ? m.msg_namelen : 0);
		rs_called_read(c, m.msg_control, m.msg_control ? m.msg_controllen : 0);
	} else {
		rs_called_write(c, &p->msg_namelen, sizeof p->msg_namelen);
		rs_called_write(c, &p->msg_controllen, sizeof p->msg_controllen);
		rs_called_write(c, &p->msg_flags, sizeof p->msg_flags);
		rs_called_write(c, m.msg_name, m.msg_name && m.msg_namelen < sizeof(struct sockaddr_storage) ? m.msg_namelen : 0);
		rs_called_write(c, m.msg_control, m.msg_control ? m.msg_controllen : 0);
	}
	vector(c, m.msg_iov, m.msg_iovlen, how, bytes);
}

static void messages(const struct rs_called *c, const struct mmsghdr *p, size_t n, unsigned how)
{
	enum { MAX = 1024 };
	for (size_t i = 0; i < n && i < MAX; i++) {
		struct mmsghdr m;
		if (peek(&m, (uintptr_t)&p[i], sizeof m) < sizeof m)
			return;
		message(c, &p[i].msg_hdr, how, how == READS ? SIZE_MAX : m.msg_len);
		if (how == WRITES)
			rs_called_write(c, &p[i].msg_len, sizeof p[i].msg_len);
	}
}

static void string(const struct rs_called *c, uintptr_t p)
{
	enum { LONGEST = 4096, AT_A_TIME = 256 };
	char some[AT_A_TIME];
	for (uintptr_t at = p; at - p < LONGEST;) {
		size_t want = AT_A_TIME - at % AT_A_TIME; /* which never crosses the end of a page */
		if (peek(some, at, want) < want)
			return;
		for (size_t i = 0; i < want; i++)
			if (!some[i]) {
				rs_called_read(c, (const void *)p, at + i - p + 1);
				return;
			}
		at += want;
	}
}

/* What is asked for is read, what came of it is written. */
static void polled(const struct rs_called *c, const struct pollfd *p, size_t n, unsigned how)
{
	enum { MAX = 1024 };
	for (size_t i = 0; i < n && i < MAX; i++)
		if (how == READS)
			rs_called_read(c, &p[i], offsetof(struct pollfd, revents));
		else
			rs_called_write(c, &p[i].revents, sizeof p[i].revents);
}

bool rs_kernel_has(unsigned n) { return n < ROWS && calls[n][0].what != NOTHING; }

void rs_kernel_reads(const struct rs_called *c, unsigned n, const long a[6])
{
	if (!c->t || n >= ROWS)
		return;
	for (const struct memory *m = calls[n]; m < calls[n] + MOST && m->what; m++) {
		const void *p = (const void *)a[m->arg];
		uint64_t count = (uint64_t)a[m->by];
		if (!p || !(m->how & READS))
			continue;
		switch (m->what) {
		case SIZED: rs_called_read(c, p, m->size); break;
		case COUNTED: rs_called_read(c, p, count <= MOST_BYTES / m->size ? count * m->size : 0); break;
		case STRING: string(c, (uintptr_t)p); break;
		case VECTOR: vector(c, p, count, READS, SIZE_MAX); break;
		case MESSAGE: message(c, p, READS, SIZE_MAX); break;
		case MESSAGES: messages(c, p, count, READS); break;
		case POLLFDS: polled(c, p, count, READS); break;
		case BITS: rs_called_read(c, p, count < FD_SETSIZE * 64 ? (count + 63) / 64 * 8 : 0); break;
		}
	}
}

void rs_kernel_wrote(const struct rs_called *c, unsigned n, const long a[6], long result)
{
	if (!c->t || n >= ROWS || result < 0)
		return;
	for (const struct memory *m = calls[n]; m < calls[n] + MOST && m->what; m++) {
		const void *p = (const void *)a[m->arg];
		uint64_t count = (uint64_t)a[m->by];
		if (!p || !(m->how & WRITES))
			continue;
		switch (m->what) {
		case SIZED: rs_called_write(c, p, m->size); break;
		case RETURNED: rs_called_write(c, p, (size_t)result * m->size); break;
		case VECTOR: vector(c, p, count, WRITES, (size_t)result); break;
		case MESSAGE: message(c, p, WRITES, (size_t)result); break;
		case MESSAGES: messages(c, p, (size_t)result, WRITES); break;
		case POLLFDS: polled(c, p, count, WRITES); break;
		case BITS: rs_called_write(c, p, (count + 63) / 64 * 8); break;
		case LENGTH: {
			socklen_t len;
			if (peek(&len, (uintptr_t)count, sizeof len) == sizeof len && len <= sizeof(struct sockaddr_storage))
				rs_called_write(c, p, len);
			rs_called_write(c, (const void *)count, sizeof len);
		}
		}
	}
}
