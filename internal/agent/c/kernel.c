/* kernel.c: what memory system calls read and write: one table, by number. They are accesses of the calling thread (called.h).
 *
 * Nothing here may fault where the kernel gives EFAULT: what leads to other memory (iovec, msghdr, strings) is read by the kernel for us before the call; behind one that succeeded it is known
 * to be readable. */
#include "called.h"
#include "core.h"
#include <fcntl.h>
#include <linux/fs.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/sysinfo.h>
#include <sys/times.h>
#include <sys/timex.h>
#include <sys/uio.h>
#include <sys/utsname.h>

/* What an argument points to. SIZED: `size` bytes. COUNTED: `size` bytes for each of what argument `by` counts. RETURNED: for each of what the call returns. STRING: up to its end. VECTOR: iovecs,
 * as many as argument `by` says, and what they point to, of which at most as many bytes are written as the call returns. MESSAGE: a msghdr. MESSAGES: mmsghdrs, of which `by` counts those that
 * are sent, the result those that came. LENGTH: as many bytes as the socklen_t says to which argument `by` points. BITS: a bit for each of what argument `by` counts, by
 * whole words. NODES: likewise, of one less (get_mempolicy). POLLFDS: `by` counts them. SENT: the lengths in mmsghdrs. IOCTL, FCNTL, PRCTL: as argument `by`, the command, says. */
enum what { NOTHING, SIZED, COUNTED, RETURNED, STRING, VECTOR, MESSAGE, MESSAGES, LENGTH, BITS, NODES, POLLFDS, SENT, IOCTL, FCNTL, PRCTL };
/* RAW: written, but libc's function of that name keeps it from its caller, or nobody but `guard` asks. SHORT: by a call that is interrupted, too; with neither WRITES nor RAW only then. */
enum { READS = 1, WRITES = 2, BOTH = 3, RAW = 4, SHORT = 8 };
enum { MOST = 4, ROWS = 512, MOST_BYTES = 0x7ffff000 }; /* of one call: MAX_RW_COUNT */
struct memory { uint8_t how, what, arg, by; uint16_t size; };

#define IN(arg, size) {READS, SIZED, arg, 0, size}
#define OUT(arg, size) {WRITES, SIZED, arg, 0, size}
#define IN_EACH(arg, by, size) {READS, COUNTED, arg, by, size}
#define OUT_EACH(arg, size) {WRITES, RETURNED, arg, 0, size}
#define PATH(arg) {READS, STRING, arg, 0, 0}
#define FDS(arg) {BOTH, BITS, arg, 0, 0}
#define POLLED(arg, by) {BOTH | SHORT, POLLFDS, arg, by, 0}
#define ADDRESS(arg, by) {WRITES, LENGTH, arg, by, sizeof(struct sockaddr_storage)}
#define RAW_OUT(arg, size) {RAW, SIZED, arg, 0, size}
#define RAW_OUT_OF(arg, what, by) {RAW, what, arg, by, 1}
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
	[SYS_sendmmsg] = {{READS, MESSAGES, 1, 2, 0}, {RAW, SENT, 1, 0, 0}},
	[SYS_mq_timedsend] = {IN_EACH(1, 2, 1)},
	[SYS_mq_timedreceive] = {OUT_EACH(1, 1), OUT(3, sizeof(unsigned))},
	[SYS_accept] = {ADDRESS(1, 2)},
	[SYS_accept4] = {ADDRESS(1, 2)},
	[SYS_getsockname] = {ADDRESS(1, 2)},
	[SYS_getpeername] = {ADDRESS(1, 2)},
	[SYS_getsockopt] = {ADDRESS(3, 4), {RAW, LENGTH, 3, 4, 1 << 15}},
	[SYS_setsockopt] = {IN_EACH(3, 4, 1)},
	[SYS_connect] = {IN_EACH(1, 2, 1)},
	[SYS_bind] = {IN_EACH(1, 2, 1)},
	[SYS_socketpair] = {OUT(3, 2 * sizeof(int))},
	[SYS_pipe] = {OUT(0, 2 * sizeof(int))},
	[SYS_pipe2] = {OUT(0, 2 * sizeof(int))},
	[SYS_poll] = {POLLED(0, 1)},
	[SYS_ppoll] = {POLLED(0, 1), {READS | RAW | SHORT, SIZED, 2, 0, sizeof(struct timespec)}, IN(3, 8)},
	[SYS_select] = {FDS(1), FDS(2), FDS(3), {RAW | SHORT, SIZED, 4, 0, sizeof(struct timeval)}},
	[SYS_pselect6] = {FDS(1), FDS(2), FDS(3), {READS | RAW | SHORT, SIZED, 4, 0, sizeof(struct timespec)}},
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
	[SYS_gettimeofday] = {OUT(0, sizeof(struct timeval)), RAW_OUT(1, 2 * sizeof(int))},
	[SYS_clock_gettime] = {OUT(1, sizeof(struct timespec))},
	[SYS_clock_getres] = {OUT(1, sizeof(struct timespec))},
	[SYS_clock_settime] = {IN(1, sizeof(struct timespec))},
	[SYS_nanosleep] = {IN(0, sizeof(struct timespec)), {SHORT, SIZED, 1, 0, sizeof(struct timespec)}},
	[SYS_clock_nanosleep] = {IN(2, sizeof(struct timespec)), {SHORT, SIZED, 3, 0, sizeof(struct timespec)}},
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
	[SYS_time] = {RAW_OUT(0, sizeof(time_t))},
	[SYS_getcpu] = {RAW_OUT(0, sizeof(unsigned)), RAW_OUT(1, sizeof(unsigned))},
	[SYS_rt_sigprocmask] = {RAW_OUT_OF(2, COUNTED, 3)},
	[SYS_rt_sigaction] = {RAW_OUT(2, 32)},
	[SYS_rt_sigtimedwait] = {RAW_OUT(1, sizeof(siginfo_t))},
	[SYS_rt_sigpending] = {RAW_OUT_OF(0, COUNTED, 1)},
	[SYS_sched_getaffinity] = {{RAW, RETURNED, 2, 1, 1}},
	[SYS_sched_getparam] = {RAW_OUT(1, sizeof(int))},
	[SYS_sched_getattr] = {RAW_OUT_OF(1, COUNTED, 2)},
	[SYS_sched_rr_get_interval] = {RAW_OUT(1, sizeof(struct timespec))},
	[SYS_get_robust_list] = {RAW_OUT(1, sizeof(void *)), RAW_OUT(2, sizeof(size_t))},
	[SYS_timer_create] = {RAW_OUT(2, sizeof(int))},
	[SYS_timer_settime] = {RAW_OUT(3, 2 * sizeof(struct timespec))},
	[SYS_timer_gettime] = {RAW_OUT(1, 2 * sizeof(struct timespec))},
	[SYS_getdents] = {{RAW, RETURNED, 1, 2, 1}},
	[SYS_statfs] = {RAW_OUT(1, sizeof(struct statfs))},
	[SYS_fstatfs] = {RAW_OUT(1, sizeof(struct statfs))},
	[SYS_getxattr] = {{RAW, RETURNED, 2, 0, 1}},
	[SYS_lgetxattr] = {{RAW, RETURNED, 2, 0, 1}},
	[SYS_fgetxattr] = {{RAW, RETURNED, 2, 0, 1}},
	[SYS_listxattr] = {{RAW, RETURNED, 1, 0, 1}},
	[SYS_llistxattr] = {{RAW, RETURNED, 1, 0, 1}},
	[SYS_flistxattr] = {{RAW, RETURNED, 1, 0, 1}},
	[SYS_get_mempolicy] = {RAW_OUT(0, sizeof(int)), RAW_OUT_OF(1, NODES, 2)},
	[SYS_wait4] = {RAW_OUT(1, sizeof(int)), RAW_OUT(3, sizeof(struct rusage))},
	[SYS_waitid] = {RAW_OUT(2, sizeof(siginfo_t)), RAW_OUT(4, sizeof(struct rusage))},
	[SYS_mq_getsetattr] = {RAW_OUT(2, 8 * sizeof(long))},
	[SYS_ioctl] = {RAW_OUT_OF(2, IOCTL, 1)},
	[SYS_fcntl] = {RAW_OUT_OF(2, FCNTL, 1)},
	[SYS_prctl] = {RAW_OUT_OF(1, PRCTL, 0)},
};

/* Copies what is there of n bytes at p, which need not be mapped. */
size_t rs_kernel_peek(void *to, uintptr_t p, size_t n)
{
	struct iovec mine = {to, n}, there = {(void *)p, n};
	if (rs_sandboxed)
		return 0;
	long r = RS_SYS6(SYS_process_vm_readv, rs_os_tid(), &mine, 1, &there, 1, 0);
	return r < 0 ? 0 : (size_t)r;
}

/* Where pieces go: to the detector as c's accesses, or to f. */
struct sink { const struct rs_called *c; rs_kernel_piece *f; void *arg; };

static void wrote(const struct sink *s, const void *p, size_t n)
{
	if (s->f)
		s->f(s->arg, p, n);
	else
		rs_called_write(s->c, p, n);
}

static void vector(const struct sink *s, const struct iovec *v, size_t n, unsigned how, size_t bytes)
{
	enum { IOV_MAX = 1024, AT_A_TIME = 16 };
	struct iovec some[AT_A_TIME];
	if (n > IOV_MAX)
		return;
	while (n > 0 && bytes > 0) {
		size_t k = n < AT_A_TIME ? n : AT_A_TIME;
		if (rs_kernel_peek(some, (uintptr_t)v, k * sizeof *v) < k * sizeof *v)
			return;
		if (how == READS)
			rs_called_read(s->c, v, k * sizeof *v);
		for (size_t i = 0; i < k && bytes > 0; i++) {
			size_t len = some[i].iov_len < bytes ? some[i].iov_len : bytes;
			if (how == READS)
				rs_called_read(s->c, some[i].iov_base, len);
			else
				wrote(s, some[i].iov_base, len);
			bytes -= len;
		}
		v += k;
		n -= k;
	}
}

static void message(const struct sink *s, const struct msghdr *p, unsigned how, size_t bytes)
{
	struct msghdr m;
	if (rs_kernel_peek(&m, (uintptr_t)p, sizeof m) < sizeof m)
		return;
	if (how == READS) {
		rs_called_read(s->c, p, sizeof m);
		rs_called_read(s->c, m.msg_name, m.msg_name ? m.msg_namelen : 0);
		rs_called_read(s->c, m.msg_control, m.msg_control ? m.msg_controllen : 0);
	} else {
		wrote(s, &p->msg_namelen, sizeof p->msg_namelen);
		wrote(s, &p->msg_controllen, sizeof p->msg_controllen);
		wrote(s, &p->msg_flags, sizeof p->msg_flags);
		wrote(s, m.msg_name, m.msg_name && m.msg_namelen < sizeof(struct sockaddr_storage) ? m.msg_namelen : 0);
		wrote(s, m.msg_control, m.msg_control ? m.msg_controllen : 0);
	}
	vector(s, m.msg_iov, m.msg_iovlen, how, bytes);
}

static void messages(const struct sink *s, const struct mmsghdr *p, size_t n, unsigned how)
{
	enum { MAX = 1024 };
	for (size_t i = 0; i < n && i < MAX; i++) {
		struct mmsghdr m;
		if (rs_kernel_peek(&m, (uintptr_t)&p[i], sizeof m) < sizeof m)
			return;
		message(s, &p[i].msg_hdr, how, how == READS ? SIZE_MAX : m.msg_len);
		if (how == WRITES)
			wrote(s, &p[i].msg_len, sizeof p[i].msg_len);
	}
}

static void string(const struct rs_called *c, uintptr_t p)
{
	enum { LONGEST = 4096, AT_A_TIME = 256 };
	char some[AT_A_TIME];
	for (uintptr_t at = p; at - p < LONGEST;) {
		size_t want = AT_A_TIME - at % AT_A_TIME; /* which never crosses the end of a page */
		if (rs_kernel_peek(some, at, want) < want)
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
static void polled(const struct sink *s, const struct pollfd *p, size_t n, unsigned how)
{
	enum { MAX = 1 << 16 };
	for (size_t i = 0; i < n && i < MAX; i++)
		if (how == READS)
			rs_called_read(s->c, &p[i], offsetof(struct pollfd, revents));
		else
			wrote(s, &p[i].revents, sizeof p[i].revents);
}

bool rs_kernel_has(unsigned n) { return n < ROWS && calls[n][0].how & BOTH; }

void rs_kernel_reads(const struct rs_called *c, unsigned n, const long a[6])
{
	if (!c->t || n >= ROWS)
		return;
	const struct sink s = {.c = c};
	for (const struct memory *m = calls[n]; m < calls[n] + MOST && m->what; m++) {
		const void *p = (const void *)a[m->arg];
		uint64_t count = (uint64_t)a[m->by];
		if (!p || !(m->how & READS))
			continue;
		switch (m->what) {
		case SIZED: rs_called_read(c, p, m->size); break;
		case COUNTED: rs_called_read(c, p, count <= MOST_BYTES / m->size ? count * m->size : 0); break;
		case STRING: string(c, (uintptr_t)p); break;
		case VECTOR: vector(&s, p, count, READS, SIZE_MAX); break;
		case MESSAGE: message(&s, p, READS, SIZE_MAX); break;
		case MESSAGES: messages(&s, p, count, READS); break;
		case POLLFDS: polled(&s, p, count, READS); break;
		case BITS: rs_called_read(c, p, count < FD_SETSIZE * 64 ? (count + 63) / 64 * 8 : 0); break;
		}
	}
}

/* Of the commands that are recorded (internal/guard). */
static size_t by_command(unsigned what, uint32_t command)
{
	if (what == FCNTL)
		return command == F_GETLK || command == F_OFD_GETLK ? sizeof(struct flock) : 0;
	if (what == PRCTL)
		return command == 16 /* PR_GET_NAME */ ? 16 : 0;
	switch (command) {
	case TCGETS: return 36; /* the kernel's struct termios */
	case 0x802c542a /* TCGETS2 */: return 44;
	case TIOCGWINSZ: return sizeof(struct winsize);
	case FIONREAD:
	case TIOCOUTQ:
	case TIOCGPTN:
	case FS_IOC_GETFLAGS: /* though its number says long */
	case TIOCGSID:
	case TIOCGPGRP: return sizeof(int);
	case BLKGETSIZE64: return sizeof(uint64_t);
	case SIOCGIFINDEX:
	case SIOCGIFNAME:
	case SIOCGIFFLAGS:
	case SIOCGIFADDR:
	case SIOCGIFMTU:
	case SIOCGIFHWADDR: return sizeof(struct ifreq);
	}
	return 0;
}

/* room: for RETURNED, how many there may be, as the result may say more (MSG_TRUNC); for LENGTH, the length before the call. */
static void written(const struct sink *s, const struct memory *m, const long a[6], long result, uint64_t room)
{
	const void *p = (const void *)a[m->arg];
	uint64_t count = (uint64_t)a[m->by], n = (uint64_t)result < room ? (uint64_t)result : room;
	switch (m->what) {
	case SIZED: wrote(s, p, m->size); break;
	case COUNTED: wrote(s, p, count <= MOST_BYTES / m->size ? count * m->size : 0); break;
	case RETURNED: wrote(s, p, n * m->size); break;
	case VECTOR: vector(s, p, count, WRITES, (size_t)result); break;
	case MESSAGE: message(s, p, WRITES, (size_t)result); break;
	case MESSAGES: messages(s, p, (size_t)result, WRITES); break;
	case POLLFDS: polled(s, p, count, WRITES); break;
	case BITS: wrote(s, p, (count + 63) / 64 * 8); break;
	case NODES: wrote(s, p, count ? (count - 1 + 63) / 64 * 8 : 0); break;
	case IOCTL:
	case FCNTL:
	case PRCTL: wrote(s, p, by_command(m->what, (uint32_t)count)); break;
	case SENT:
		for (const struct mmsghdr *h = p; h < (const struct mmsghdr *)p + result; h++)
			wrote(s, &h->msg_len, sizeof h->msg_len);
		break;
	case LENGTH: {
		socklen_t len;
		if (rs_kernel_peek(&len, (uintptr_t)count, sizeof len) == sizeof len && len <= m->size)
			wrote(s, p, len < room ? len : room);
		wrote(s, (const void *)count, sizeof len);
	}
	}
}

void rs_kernel_wrote(const struct rs_called *c, unsigned n, const long a[6], long result)
{
	if (!c->t || n >= ROWS || result < 0)
		return;
	const struct sink s = {.c = c};
	for (const struct memory *m = calls[n]; m < calls[n] + MOST && m->what; m++)
		if (a[m->arg] && m->how & WRITES)
			written(&s, m, a, result, UINT64_MAX);
}

/* --- for guard ------------------------------------------------------------------------------------------------------------------------------ */

/* Which argument says how many bytes there is room for. */
static int room_of(unsigned n)
{
	switch (n) {
	case SYS_getcwd:
	case SYS_getrandom:
	case SYS_sched_getaffinity: return 1;
	case SYS_read:
	case SYS_pread64:
	case SYS_recvfrom:
	case SYS_mq_timedreceive:
	case SYS_readlink:
	case SYS_getdents:
	case SYS_listxattr:
	case SYS_llistxattr:
	case SYS_flistxattr:
	case SYS_getdents64: return 2;
	case SYS_getxattr: /* without room they say how much there is */
	case SYS_lgetxattr:
	case SYS_fgetxattr:
	case SYS_readlinkat: return 3;
	}
	return -1;
}

uint32_t rs_kernel_room(unsigned n, const long a[6])
{
	socklen_t len = 0;
	for (const struct memory *m = calls[n]; n < ROWS && m < calls[n] + MOST && m->what; m++)
		if (m->what == LENGTH && a[m->arg] && rs_kernel_peek(&len, (uintptr_t)a[m->by], sizeof len) == sizeof len)
			return len;
	return 0;
}

void rs_kernel_pieces(unsigned n, const long a[6], long result, uint32_t length, rs_kernel_piece *f, void *arg)
{
	const struct sink s = {.f = f, .arg = arg};
	int by = room_of(n);
	if (n == SYS_eventfd) /* see its row */
		return;
	for (const struct memory *m = calls[n]; n < ROWS && m < calls[n] + MOST && m->what; m++)
		if (a[m->arg] && (result >= 0 ? m->how & (WRITES | RAW) : m->how & SHORT && result == -4 /* EINTR */))
			written(&s, m, a, result, m->what == LENGTH ? length : m->what == RETURNED && by >= 0 ? (uint64_t)a[by] / m->size : UINT64_MAX);
}

void rs_kernel_data(unsigned n, const long a[6], size_t bytes, rs_kernel_piece *f, void *arg)
{
	struct iovec some[1];
	if (n == SYS_write || n == SYS_pwrite64 || n == SYS_sendto) {
		f(arg, (const void *)a[1], bytes);
		return;
	}
	if (n != SYS_writev && n != SYS_pwritev && n != SYS_pwritev2)
		return;
	for (uintptr_t v = (uintptr_t)a[1]; bytes > 0 && rs_kernel_peek(some, v, sizeof *some) == sizeof *some; v += sizeof *some) {
		size_t k = some->iov_len < bytes ? some->iov_len : bytes;
		f(arg, some->iov_base, k);
		bytes -= k;
	}
}
