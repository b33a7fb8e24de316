/* guardcall.c: system calls that the signal of a stop interrupted. See guard.h.
 *
 * Of the calls that wait, the kernel makes most again by itself (our handler has SA_RESTART): it puts the thread back onto the instruction. Some return EINTR after any handler (signal(7), 'Interruption of system calls': sleeps,
 * poll, epoll_wait, semop, waits for signals, futex with a timeout); these are put back here. Which call it was the frame does not say, so it is read from /proc before the signal is sent, and believed
 * where the registers are the same still; a thread that came to its call in between is recognised by the `mov $number, %eax` before it, or by the hook's frame.
 *
 * Calls that move many bytes wait until all are moved, and return after any signal how many were (a write to a pipe, a send): the thread goes on with the rest, and the hook adds what came before (rs_call.moved). So do those that move
 * many messages, and io_uring_enter, which says how many requests it has taken whether or not the completions are there that it was to wait for: it is to wait for them again, and takes no more.
 *
 * A relative timeout goes on from when the call began, which the hook notes by the processor's clock: that costs 10 ns, the kernel's would cost as much as many a call. The first stop that finds the thread there makes it one of CLOCK_MONOTONIC, by how both have gone on
 * since the session began, so all but what was before that stop is exact; that is too long by a thousandth at most, and never too short. Who has made its call elsewhere than in the hook waits from when we first saw it there: too long by at most an epoch. */
#include "guard.h"
#include "calls.h"
#include "guardsys.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <termios.h>

/* The argument that holds a relative timeout, and as what. NONE: none, or absolute, or the kernel itself writes there what is left (select, ppoll, pselect). */
enum { NONE, MS, TIMESPEC };
static const struct { uint16_t number; uint8_t kind, arg; } again[] = {
	{SYS_nanosleep, TIMESPEC, 0}, {SYS_clock_nanosleep, TIMESPEC, 2}, {SYS_poll, MS, 2}, {SYS_ppoll, NONE, 0}, {SYS_select, NONE, 0}, {SYS_pselect6, NONE, 0},
	{SYS_epoll_wait, MS, 3}, {SYS_epoll_pwait, MS, 3}, {441 /* epoll_pwait2 */, TIMESPEC, 3}, {SYS_futex, TIMESPEC, 3}, {449 /* futex_waitv */, NONE, 0}, {455 /* futex_wait */, NONE, 0},
	{SYS_pause, NONE, 0}, {SYS_rt_sigsuspend, NONE, 0}, {SYS_rt_sigtimedwait, TIMESPEC, 2}, {SYS_semop, NONE, 0}, {SYS_semtimedop, TIMESPEC, 3}, {SYS_msgrcv, NONE, 0}, {SYS_msgsnd, NONE, 0},
	{SYS_io_getevents, TIMESPEC, 4}, {333 /* io_pgetevents */, TIMESPEC, 4}, {426 /* io_uring_enter */, NONE, 0}, {SYS_recvmmsg, NONE, 0},
	/* On sockets with SO_RCVTIMEO or SO_SNDTIMEO. */
	{SYS_read, NONE, 0}, {SYS_readv, NONE, 0}, {SYS_write, NONE, 0}, {SYS_writev, NONE, 0}, {SYS_recvfrom, NONE, 0}, {SYS_recvmsg, NONE, 0}, {SYS_sendto, NONE, 0}, {SYS_sendmsg, NONE, 0},
	{SYS_accept, NONE, 0}, {SYS_accept4, NONE, 0},
};
enum { ROWS = sizeof again / sizeof again[0] };

static int row_of(uint64_t number)
{
	for (int i = 0; i < ROWS; i++)
		if (again[i].number == number)
			return i;
	return -1;
}

/* Made again by the kernel whatever handlers run. */
static bool never_interrupted(const struct rs_guard_call *c)
{
	switch (c->number) {
	case SYS_clone: case SYS_fork: case SYS_vfork: case 435 /* clone3 */:
		return true;
	case SYS_futex:
		return (c->arg[1] & FUTEX_CMD_MASK) == FUTEX_LOCK_PI || (c->arg[1] & FUTEX_CMD_MASK) == 13 /* FUTEX_LOCK_PI2 */;
	}
	return false;
}

static uint64_t ns_of(const struct timespec *ts) { return (uint64_t)ts->tv_sec * 1000000000u + (uint64_t)ts->tv_nsec; }

/* What the kernel has read for a call, or runs; by now it may not be there. Where the kernel does not say so (as in some containers), it is: else a sleep whose timeout is not known would begin anew at each stop. */
static bool fetch(void *to, uint64_t from, size_t n)
{
	struct iovec local = {to, n}, remote = {(void *)from, n};
	long r = RS_SYS6(SYS_process_vm_readv, rs_os_tid(), &local, 1, &remote, 1, 0);
	if (r != -EPERM && r != -ENOSYS && r != -EACCES)
		return r == (long)n;
	rs_os_copy(to, (const void *)from, n);
	return true;
}

/* Of a setns without a kind it is not known. */
bool rs_guard_call_wants_alone(const struct rs_call *c)
{
	enum { VM = 0x100, SIGHAND = 0x800, THREAD = 0x10000, TIME = 0x80, MOUNTS = 0x20000, USERS = 0x10000000 };
	return c->number == SYS_unshare ? c->arg[0] & (VM | SIGHAND | THREAD | USERS) : c->number == SYS_setns && (!c->arg[1] || c->arg[1] & (TIME | MOUNTS | USERS));
}

/* --- when a call began --------------------------------------------------------------------------------------------------- */

struct moment { uint64_t ticks, ns; };
static struct moment first; /* of the session; before the first checkpoint */

static uint64_t ticks(void)
{
	uint32_t lo, hi;
	__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi) : : "memory");
	return (uint64_t)hi << 32 | lo;
}

/* Both clocks, of which the ticks are not later, and as close as they come. */
static struct moment now(void)
{
	enum { TRIES = 4 };
	struct moment m = {0};
	for (uint64_t best = UINT64_MAX, i = 0; i < TRIES; i++) {
		uint64_t before = ticks(), ns = rs_os_now_ns(), took = ticks() - before;
		if (took < best)
			best = took, m = (struct moment){before, ns};
	}
	return m;
}

void rs_guard_calls_begin(void) { first = now(); }

void rs_guard_call_begins(struct rs_call *c)
{
	c->begun = 0;
	switch (c->number) {
	case SYS_poll:
		if ((int32_t)c->arg[2] <= 0)
			return;
		break;
	case SYS_epoll_wait: case SYS_epoll_pwait:
		if ((int32_t)c->arg[3] <= 0)
			return;
		break;
	case SYS_futex:
		if ((c->arg[1] & FUTEX_CMD_MASK) != FUTEX_WAIT || !c->arg[3])
			return;
		break;
	case SYS_nanosleep: case SYS_clock_nanosleep: case 441 /* epoll_pwait2 */: case SYS_rt_sigtimedwait: case SYS_semtimedop: case SYS_io_getevents: case 333 /* io_pgetevents */:
		break;
	default:
		return;
	}
	c->begun = ticks();
}

/* In ns of CLOCK_MONOTONIC, and not earlier than it was: a wait is to be no shorter than was asked for. Where nothing was noted it is now. */
static uint64_t since(struct rs_call *c)
{
	const uint64_t in_ns = 1ull << 63;
	enum { SHIFT = 20, SMALL = 43, DOUBT = 1024 /* the kernel makes its clock go faster or slower, by 500 of a million at most */ };
	if (c->begun & in_ns)
		return c->begun & ~in_ns;
	struct moment m = now();
	uint64_t all = m.ticks - first.ticks, ns = m.ns - first.ns, gone = m.ticks - c->begun, passed = 0;
	/* A clock that goes backwards, as where a virtual machine has moved, says nothing. */
	if (c->begun && m.ticks > first.ticks && m.ns > first.ns && gone <= all) {
		for (; ns >> SMALL; all >>= 1)
			ns >>= 1;
		uint64_t rate = (ns << SHIFT) / all;
		passed = (gone >> SHIFT) * rate + ((gone & ((1u << SHIFT) - 1)) * rate >> SHIFT);
		passed -= passed / DOUBT;
	}
	c->begun = in_ns | (m.ns - passed);
	return m.ns - passed;
}

/* In ns; UINT64_MAX: none that is relative. */
static uint64_t timeout_of(const struct rs_guard_call *c)
{
	int i = row_of(c->number);
	if (i < 0)
		return UINT64_MAX;
	uint64_t a = c->arg[again[i].arg];
	struct timespec ts;
	switch (again[i].kind) {
	case MS:
		return (int32_t)a <= 0 ? UINT64_MAX : (uint64_t)(uint32_t)a * 1000000u;
	case TIMESPEC:
		if (c->number == SYS_futex && (c->arg[1] & FUTEX_CMD_MASK) != FUTEX_WAIT)
			return UINT64_MAX;
		if (c->number == SYS_clock_nanosleep && c->arg[1] & 1 /* TIMER_ABSTIME */)
			return UINT64_MAX;
		return a && fetch(&ts, a, sizeof ts) && (uint64_t)ts.tv_sec < 1u << 30 ? ns_of(&ts) : UINT64_MAX;
	}
	return UINT64_MAX;
}

static const char *hex(const char *p, uint64_t *v)
{
	*v = 0;
	while (*p == ' ')
		p++;
	if (p[0] == '0' && p[1] == 'x')
		p += 2;
	for (;; p++) {
		char c = *p;
		if (c >= '0' && c <= '9')
			*v = *v << 4 | (uint64_t)(c - '0');
		else if (c >= 'a' && c <= 'f')
			*v = *v << 4 | (uint64_t)(c - 'a' + 10);
		else
			return p;
	}
}

/* "running", "-1 SP PC" (blocked elsewhere: a fault), or "NUMBER ARG… SP PC", the number decimal and all else hexadecimal. */
void rs_guard_call_look(int task, uint32_t tid, struct rs_guard_call *c)
{
	char name[32], text[256], *end = rs_guard_digits(name, tid);
	struct rs_guard_call n;
	rs_os_clear(&n, sizeof n);
	n.timeout = UINT64_MAX;
	rs_os_copy(end, "/syscall", 9);
	const char *p = text;
	if (rs_guard_read(task, name, text, sizeof text) > 0 && *p >= '0' && *p <= '9') {
		while (*p >= '0' && *p <= '9')
			n.number = n.number * 10 + (uint64_t)(*p++ - '0');
		for (int i = 0; i < 6; i++)
			p = hex(p, &n.arg[i]);
		p = hex(p, &n.sp);
		hex(p, &n.pc);
		n.in = n.pc != 0;
	}
	if (n.in && c->in && n.pc == c->pc && n.sp == c->sp && n.number == c->number && c->timeout != UINT64_MAX && row_of(n.number) >= 0) {
		/* Put back by us into a call whose timeout has begun. */
		const uint64_t *a = n.arg;
		int i = row_of(n.number);
		bool ours = again[i].kind == TIMESPEC ? a[again[i].arg] == (uint64_t)&c->left : a[again[i].arg] == (ns_of(&c->left) + 999999) / 1000000;
		if (ours) {
			n.since = c->since;
			n.timeout = c->timeout;
		}
	}
	if (n.in && n.timeout == UINT64_MAX) {
		n.since = rs_os_now_ns();
		n.timeout = timeout_of(&n);
	}
	struct timespec left = c->left; /* the thread's call still reads it */
	rs_os_copy(c, &n, sizeof n);
	c->left = left;
}

static bool is_syscall(uint64_t at)
{
	uint8_t b[2];
	return fetch(b, at, 2) && b[0] == 0x0f && b[1] == 0x05;
}

static bool same_arguments(const struct rs_guard_call *c, const greg_t *g)
{
	return c->in && c->sp == (uint64_t)g[REG_RSP] && c->arg[0] == (uint64_t)g[REG_RDI] && c->arg[1] == (uint64_t)g[REG_RSI] && c->arg[2] == (uint64_t)g[REG_RDX] &&
		c->arg[3] == (uint64_t)g[REG_R10] && c->arg[4] == (uint64_t)g[REG_R8] && c->arg[5] == (uint64_t)g[REG_R9];
}

/* The number of the call behind whose syscall pc is: the hook keeps it in its frame; else that in the `mov $number, %eax` shortly before. */
static bool number_before(uint64_t pc, uint64_t sp, uint64_t *number)
{
	uint8_t b[16];
	if (rs_hook_at_call(pc))
		return fetch(number, sp + offsetof(struct rs_call, number), sizeof *number);
	if (!fetch(b, pc - 16, 16))
		return false;
	for (int i = 9; i >= 5; i--)
		if (b[i] == 0xb8 && b[i + 2] < 2 && !b[i + 3] && !b[i + 4]) {
			*number = b[i + 1] | (uint64_t)b[i + 2] << 8;
			return true;
		}
	return false;
}

/* A signal of the program's own waits to be delivered, when the thread has this mask, to a handler; all: one that does not ask for calls to be made again. */
static bool other_waits(uint64_t mask, bool without_restart)
{
	uint64_t set = 0;
	if (RS_SYS2(SYS_rt_sigpending, &set, 8) < 0)
		return false;
	for (set &= ~mask & ~(1ull << (33 - 1)); set; set &= set - 1) {
		struct { uintptr_t handler; uint64_t flags; uintptr_t restorer; uint64_t mask; } a;
		int sig = __builtin_ctzll(set) + 1;
		if (RS_SYS4(SYS_rt_sigaction, sig, NULL, &a, 8) == 0 && a.handler > 1 && !(without_restart && a.flags & SA_RESTART))
			return true;
	}
	return false;
}

/* What a call that waits looks at, when it is made and after each wake: a descriptor that is readable or writable, those of poll or select, a signal. The kernel looks at that before it looks at signals; of select, and of what is received from a Unix socket, in some cases behind them, so these may fail natively where they do not here. */
enum { NOTHING, READABLE, WRITABLE, POLLED, SELECTED, SIGNALLED };
static const struct { uint16_t number; uint8_t what; } waits_for[] = {
	{SYS_poll, POLLED}, {SYS_ppoll, POLLED}, {SYS_select, SELECTED}, {SYS_pselect6, SELECTED}, {SYS_epoll_wait, READABLE}, {SYS_epoll_pwait, READABLE}, {441 /* epoll_pwait2 */, READABLE}, {SYS_rt_sigtimedwait, SIGNALLED},
	{SYS_read, READABLE}, {SYS_readv, READABLE}, {SYS_recvfrom, READABLE}, {SYS_recvmsg, READABLE}, {SYS_recvmmsg, READABLE}, {SYS_accept, READABLE}, {SYS_accept4, READABLE},
	{SYS_write, WRITABLE}, {SYS_writev, WRITABLE}, {SYS_sendto, WRITABLE}, {SYS_sendmsg, WRITABLE},
};

static bool descriptor(int32_t fd, short events)
{
	struct pollfd p = {.fd = fd, .events = events};
	const struct timespec now = {0};
	return RS_SYS5(SYS_ppoll, &p, 1, &now, NULL, 8) == 1;
}

/* On copies: the kernel writes what came of it, and the program is told that by its own call. */
static bool polled(uint64_t at, uint64_t n)
{
	enum { AT_ONCE = 64 };
	struct pollfd some[AT_ONCE];
	const struct timespec now = {0};
	for (uint64_t k; n; n -= k, at += k * sizeof *some) {
		k = n < AT_ONCE ? n : AT_ONCE;
		if (!fetch(some, at, k * sizeof *some))
			return false;
		if (RS_SYS5(SYS_ppoll, some, k, &now, NULL, 8) > 0)
			return true;
	}
	return false;
}

static bool selected(const struct rs_guard_call *c)
{
	enum { MOST = 1024, WORD = 64 };
	uint64_t set[3][MOST / WORD], n = c->arg[0];
	const struct timespec now = {0};
	void *at[3];
	if (n > MOST)
		return false;
	for (int i = 0; i < 3; i++) {
		at[i] = c->arg[1 + i] ? set[i] : NULL;
		if (at[i] && !fetch(set[i], c->arg[1 + i], (n + WORD - 1) / WORD * 8))
			return false;
	}
	return RS_SYS6(SYS_pselect6, n, at[0], at[1], at[2], &now, NULL) > 0;
}

/* The call, which the signal of a stop has taken out of its wait, would come back at once if it were made now: what it waited for has come. Made again, it says so, whatever signal came behind that; one that came before does natively have it fail (EINTR) or not, as the thread is scheduled. */
static bool would_return(const struct rs_guard_call *c)
{
	uint64_t set = 0, waits = 0;
	unsigned i = 0;
	if (c->timeout != UINT64_MAX && rs_os_now_ns() - c->since >= c->timeout)
		return true;
	while (i < sizeof waits_for / sizeof *waits_for && waits_for[i].number != c->number)
		i++;
	switch (i == sizeof waits_for / sizeof *waits_for ? NOTHING : waits_for[i].what) {
	case READABLE:
		return descriptor((int32_t)c->arg[0], POLLIN);
	case WRITABLE:
		return descriptor((int32_t)c->arg[0], POLLOUT);
	case POLLED:
		return polled(c->arg[0], (uint32_t)c->arg[1]);
	case SELECTED:
		return selected(c);
	case SIGNALLED:
		return fetch(&set, c->arg[0], 8) && RS_SYS2(SYS_rt_sigpending, &waits, 8) == 0 && set & waits;
	}
	return false;
}

static const uint8_t reg[6] = {REG_RDI, REG_RSI, REG_RDX, REG_R10, REG_R8, REG_R9};

/* The hook's frame of a thread that is behind its call, or about to make it. NULL: it is elsewhere. */
static struct rs_call *hooked(const greg_t *g, bool made)
{
	uint64_t pc = (uint64_t)g[REG_RIP];
	struct rs_call *h = (struct rs_call *)g[REG_RSP];
	return rs_hook_at_call(pc) && rs_hook_at_call(pc + 2) != made && h->see == 1 ? h : NULL;
}

/* What the hook has noted of it. */
static void take_beginning(struct rs_guard_call *c, struct rs_call *h)
{
	struct rs_guard_call asked = {.number = h->number};
	rs_os_copy(asked.arg, h->arg, sizeof asked.arg);
	c->number = h->number;
	c->timeout = timeout_of(&asked);
	if (c->timeout != UINT64_MAX)
		c->since = since(h);
}

/* h: the hook's frame, where the call is there, or NULL. */
static void shorten(struct rs_guard_call *c, greg_t *g, struct rs_call *h)
{
	int i = row_of(c->number);
	if (i < 0 || c->timeout == UINT64_MAX)
		return;
	struct timespec *to = h ? &h->lent : &c->left; /* these calls lend nothing of what was before */
	uint64_t gone = rs_os_now_ns() - c->since, left = gone < c->timeout ? c->timeout - gone : 0;
	if (again[i].kind == MS) {
		left = (left + 999999) / 1000000 * 1000000;
		if (left == 0)
			left = 1000000; /* 0 would ask, and not wait at all, which is as long */
		g[reg[again[i].arg]] = (greg_t)(left / 1000000);
	} else
		g[reg[again[i].arg]] = (greg_t)to;
	to->tv_sec = (time_t)(left / 1000000000u);
	to->tv_nsec = (long)(left % 1000000000u);
}

/* --- calls that have moved some bytes -------------------------------------------------------------------------------------- */

/* Calls that wait until all bytes are moved, and after a signal return how many were. Their arguments: a descriptor, where the bytes are, how many there are. PIECES: of struct iovec, in a struct msghdr in case of sendmsg. */
enum { NOWHERE = 6, NO_DESCRIPTOR = 7 };
enum { BYTES, PIECES, ALL /* only if the flags say so */, MESSAGES, REQUESTS };
static const struct { uint16_t number; uint8_t kind, fd, at, bytes; } moving[] = {
	{SYS_write, BYTES, 0, 1, 2}, {SYS_sendto, BYTES, 0, 1, 2}, {SYS_recvfrom, ALL, 0, 1, 2}, {SYS_sendfile, BYTES, 0, NOWHERE, 3},
	{SYS_getrandom, BYTES, NO_DESCRIPTOR, 0, 1}, {SYS_writev, PIECES, 0, 1, 2}, {SYS_sendmsg, PIECES, 0, 1, NOWHERE},
	{SYS_sendmmsg, MESSAGES, 0, 1, 2}, {SYS_recvmmsg, MESSAGES, 0, 1, 2}, {426 /* io_uring_enter */, REQUESTS, NO_DESCRIPTOR, NOWHERE, 1},
};

/* recvmmsg that a signal interrupts leaves the kernel's word for that to the socket, as the error of the next call. */
static void forget_interruption(int32_t fd)
{
	struct pollfd p = {.fd = fd};
	const struct timespec now = {0};
	int32_t error = 0, bytes = sizeof error;
	if (RS_SYS5(SYS_ppoll, &p, 1, &now, NULL, 8) == 1 && p.revents & POLLERR)
		RS_SYS5(SYS_getsockopt, fd, SOL_SOCKET, SO_ERROR, &error, &bytes);
}

/* The call is one that waits for all of its bytes. Others return at once what they can: from regular files and most devices, where nothing waits, and sendfile to a pipe. What has met an error, or its other end's end, tells that in the next call. */
static bool waits(uint64_t number, int32_t fd)
{
	struct stat st;
	struct termios of_tty;
	struct pollfd p = {.fd = fd};
	const struct timespec now = {0};
	long flags = RS_SYS2(SYS_fcntl, fd, F_GETFL);
	if (flags < 0 || flags & O_NONBLOCK || RS_SYS2(SYS_fstat, fd, &st) < 0 || RS_SYS5(SYS_ppoll, &p, 1, &now, NULL, 8) != 0)
		return false;
	return S_ISSOCK(st.st_mode) || (S_ISFIFO(st.st_mode) && number != SYS_sendfile) || (S_ISCHR(st.st_mode) && RS_SYS3(SYS_ioctl, fd, TCGETS, &of_tty) == 0);
}

/* The pieces behind the first n bytes. How many; 0: none, or too many. */
static uint64_t rest_of(uint64_t from, uint64_t count, uint64_t n, struct iovec *rest)
{
	const uint64_t room = sizeof((struct rs_guard_rest *)0)->piece / sizeof *rest;
	uint64_t kept = 0;
	for (struct iovec v; count; count--, from += sizeof v) {
		if (!fetch(&v, from, sizeof v))
			return 0;
		if (n >= v.iov_len) {
			n -= v.iov_len;
			continue;
		}
		if (kept == room)
			return 0;
		rest[kept++] = (struct iovec){(char *)v.iov_base + n, v.iov_len - n};
		n = 0;
	}
	return kept;
}

static bool pieces_left(uint64_t number, greg_t *g, uint64_t n, struct rs_guard_rest *rest)
{
	struct msghdr msg = {.msg_iov = (struct iovec *)g[REG_RSI], .msg_iovlen = (size_t)g[REG_RDX]};
	if (number == SYS_sendmsg && !fetch(&msg, (uint64_t)g[REG_RSI], sizeof msg))
		return false;
	uint64_t left = rest_of((uint64_t)msg.msg_iov, msg.msg_iovlen, n, rest->piece);
	if (!left)
		return false;
	g[REG_RSI] = (greg_t)rest->piece;
	if (number != SYS_sendmsg) {
		g[REG_RDX] = (greg_t)left;
		return true;
	}
	/* What goes beside the bytes went with the first. */
	rest->msg = msg;
	rest->msg.msg_iov = rest->piece, rest->msg.msg_iovlen = left;
	rest->msg.msg_control = NULL, rest->msg.msg_controllen = 0;
	g[REG_RSI] = (greg_t)&rest->msg;
	return true;
}

/* io_uring_enter that has taken all its requests was to wait for completions. With a timeout, which begins anew, it is left. */
static bool to_wait(const greg_t *g, int64_t n)
{
	enum { GETEVENTS = 1, EXT_ARG = 8, EXT_ARG_REG = 64 };
	struct { uint64_t mask; uint32_t bytes, least; uint64_t timeout; } ext;
	if ((uint32_t)n != (uint32_t)g[REG_RSI] || !(uint32_t)g[REG_RDX] || !(g[REG_R10] & GETEVENTS) || g[REG_R10] & EXT_ARG_REG)
		return false;
	return !(g[REG_R10] & EXT_ARG) || (fetch(&ext, (uint64_t)g[REG_R8], sizeof ext) && !ext.timeout && !ext.least);
}

/* It may have waited for more but for our signal; if not, the rest gives what the program's next call would be told, and it is not told now. */
void rs_guard_call_goes_on(struct rs_guard_rest *rest, ucontext_t *uc)
{
	greg_t *g = uc->uc_mcontext.gregs;
	if (!rs_hook_at_call((uintptr_t)g[REG_RIP]) || rs_hook_at_call((uintptr_t)g[REG_RIP] + 2))
		return;
	struct rs_call *h = (struct rs_call *)g[REG_RSP];
	const int64_t n = g[REG_RAX];
	unsigned i = 0;
	while (i < sizeof moving / sizeof *moving && moving[i].number != h->number)
		i++;
	if (i == sizeof moving / sizeof *moving || h->see != 1 || n <= 0)
		return;
	if (moving[i].kind == ALL && (g[REG_R10] & (MSG_WAITALL | MSG_PEEK)) != MSG_WAITALL)
		return;
	if (moving[i].kind == REQUESTS ? !to_wait(g, n) : moving[i].kind != PIECES && n >= (moving[i].kind == MESSAGES ? (uint32_t)g[REG_RDX] : g[reg[moving[i].bytes]]))
		return;
	if (moving[i].kind == MESSAGES && (g[REG_R10] & (MSG_DONTWAIT | MSG_WAITFORONE) || (h->number == SYS_recvmmsg && g[REG_R8])))
		return;
	if (h->number == SYS_recvmmsg)
		forget_interruption((int32_t)g[REG_RDI]);
	if ((h->number == SYS_sendto && g[REG_R10] & MSG_DONTWAIT) || (h->number == SYS_sendmsg && g[REG_RDX] & MSG_DONTWAIT) || (h->number == SYS_recvfrom && g[REG_R10] & MSG_DONTWAIT))
		return;
	if ((moving[i].fd != NO_DESCRIPTOR && !waits(h->number, (int32_t)g[reg[moving[i].fd]])) || other_waits(uc->uc_sigmask.__val[0], false))
		return;
	if (moving[i].kind == PIECES) {
		if (!pieces_left(h->number, g, (uint64_t)n, rest))
			return;
	} else {
		g[reg[moving[i].bytes]] -= n;
		if (moving[i].at != NOWHERE)
			g[reg[moving[i].at]] += moving[i].kind == MESSAGES ? n * (int64_t)sizeof(struct mmsghdr) : n;
	}
	h->moved += (uint64_t)n;
	g[REG_RAX] = (greg_t)h->number;
	g[REG_RIP] -= 2;
}

bool rs_guard_call_moved(const greg_t *g)
{
	const struct rs_call *h = (const struct rs_call *)g[REG_RSP];
	return rs_hook_at_call((uintptr_t)g[REG_RIP] + 2) && h->see == 1 && h->moved;
}

void rs_guard_call_cut(ucontext_t *uc)
{
	greg_t *g = uc->uc_mcontext.gregs;
	if (!rs_guard_call_moved(g))
		return;
	g[REG_RAX] = -EINTR;
	g[REG_RIP] += 2;
}

/* --- what is left of a wait ------------------------------------------------------------------------------------------------------ */

/* Where the kernel says that to whoever a signal has woken, and so at each stop. Of a sleep it is the program's business only if it fails: many programs have what they ask for there, too, and ask for that again. Of select and ppoll, whenever they return. */
static uint64_t *left_at(struct rs_call *c, bool *always)
{
	*always = true;
	switch (c->number) {
	case SYS_nanosleep:
	case SYS_clock_nanosleep:
		*always = false;
		return c->number == SYS_nanosleep ? &c->arg[1] : c->arg[1] & 1 /* TIMER_ABSTIME */ ? NULL : &c->arg[3];
	case SYS_ppoll: return &c->arg[2];
	case SYS_select:
	case SYS_pselect6: return &c->arg[4];
	}
	return NULL;
}

/* In frames of the thread's own: it is there. Of coroutines nobody says where theirs end. */
static bool in_frames(const struct rs_guard_log *t, uint64_t p)
{
	const struct rs_thread *own = rs_thread_tls;
	return t && own && t->sp >= own->stack_lo && p >= t->sp && p < own->stack_hi && own->stack_hi - p >= sizeof(struct timespec);
}

void rs_guard_call_lend(const struct rs_guard_log *t, struct rs_call *c)
{
	bool always;
	uint64_t *at = left_at(c, &always);
	if (RS_LIKELY(!at) || !*at)
		return;
	if (always && in_frames(t, *at))
		c->lent = *(const struct timespec *)*at;
	else if (always && !rs_peek(&c->lent, *at, sizeof c->lent))
		return;
	c->left_now = c->lent;
	c->left = *at;
	*at = (uint64_t)&c->left_now;
}

static bool same(const struct timespec *a, const struct timespec *b) { return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec; }

void rs_guard_call_take_back(struct rs_call *c)
{
	if (RS_LIKELY(!c->left))
		return;
	bool always;
	uint64_t *at = left_at(c, &always), to = c->left;
	*at = to;
	c->left = 0;
	if (rs_guard_mode() == RS_GUARD_REPLAY || (always ? same(&c->left_now, &c->lent) : c->result != -EINTR))
		return;
	/* Whether it can be written the kernel says, which writes as much there. */
	if (in_frames(rs_guard_self(), to) || RS_SYS2(SYS_clock_gettime, CLOCK_MONOTONIC, to) != -EFAULT)
		*(struct timespec *)to = c->left_now;
	else if (!always)
		c->result = -EFAULT; /* of the others the kernel says nothing, too */
}

/* --- what came of a poll ------------------------------------------------------------------------------------------------------------ */

/* Whoever comes out of poll has it written, also by a stop, and so in the recording alone: a program that polls the same places again had there what came of the call before. Who stands before it in the re-execution has made no call. */
void rs_guard_call_polls(const greg_t *g, struct rs_guard_polled *p)
{
	const struct rs_call *h = (const struct rs_call *)g[REG_RSP];
	uintptr_t pc = (uintptr_t)g[REG_RIP];
	p->n = 0;
	if (rs_hook_at_call(pc) && (h->number == SYS_poll || h->number == SYS_ppoll))
		p->at = h->arg[0], p->n = (uint32_t)h->arg[1];
}

/* By the kernel, which knows whether it is there. */
void rs_guard_call_unpoll(const struct rs_guard_polled *p)
{
	enum { AT_ONCE = 64 };
	static const short nothing[AT_ONCE];
	const struct iovec from = {(void *)nothing, sizeof nothing};
	struct iovec to[AT_ONCE];
	for (uint64_t i = 0, k; i < p->n; i += k) {
		for (k = 0; k < AT_ONCE && i + k < p->n; k++)
			to[k] = (struct iovec){(char *)p->at + (i + k) * sizeof(struct pollfd) + offsetof(struct pollfd, revents), sizeof(short)};
		if (RS_SYS6(SYS_process_vm_writev, rs_os_pid(), &from, 1, to, k, 0) != (long)(k * sizeof(short)))
			break;
	}
}

/* The call behind which the registers are, with an EINTR. */
static bool interrupted(struct rs_guard_call *c, const greg_t *g)
{
	uint64_t pc = (uint64_t)g[REG_RIP];
	struct timespec left = c->left; /* the call may be one that was put back, and read it */
	rs_os_clear(c, sizeof *c);
	c->left = left;
	if (!number_before(pc, (uint64_t)g[REG_RSP], &c->number))
		return false;
	c->in = true;
	c->pc = pc;
	c->sp = (uint64_t)g[REG_RSP];
	c->arg[0] = (uint64_t)g[REG_RDI], c->arg[1] = (uint64_t)g[REG_RSI], c->arg[2] = (uint64_t)g[REG_RDX];
	c->arg[3] = (uint64_t)g[REG_R10], c->arg[4] = (uint64_t)g[REG_R8], c->arg[5] = (uint64_t)g[REG_R9];
	c->since = rs_os_now_ns();
	c->timeout = timeout_of(c);
	return true;
}

/* False: it fails, as it does natively by a signal that waits now. */
static bool put_back(const struct rs_guard_call *c, ucontext_t *uc)
{
	greg_t *g = uc->uc_mcontext.gregs;
	/* Signals that only the mask of the wait lets through come when the call is made again. */
	if (row_of(c->number) < 0 || (other_waits(uc->uc_sigmask.__val[0], false) && !would_return(c)))
		return false;
	g[REG_RAX] = (greg_t)c->number;
	g[REG_RIP] -= 2;
	return true;
}

void rs_guard_call_unbroken(struct rs_guard_rest *rest, ucontext_t *uc)
{
	struct rs_guard_call c = {0};
	greg_t *g = uc->uc_mcontext.gregs;
	rs_guard_call_goes_on(rest, uc);
	if (g[REG_RAX] != -EINTR || !is_syscall((uint64_t)g[REG_RIP] - 2) || !interrupted(&c, g))
		return;
	struct rs_call *h = hooked(g, true);
	if (h)
		take_beginning(&c, h);
	/* Elsewhere a timeout begins anew: there is no place for what is left of it. */
	if (put_back(&c, uc) && h)
		shorten(&c, g, h);
}

/* The thread ran on when it was looked at. It may have come out of that call, and be in the next one like it now: what lay where the timeout was read is anything then. */
static void begins_now(struct rs_guard_call *c)
{
	int i = row_of(c->number);
	if (i < 0 || again[i].kind != TIMESPEC || c->arg[again[i].arg] == (uint64_t)&c->left)
		return;
	c->since = rs_os_now_ns();
	c->timeout = timeout_of(c);
}

void rs_guard_call_again(struct rs_guard_call *c, ucontext_t *uc)
{
	greg_t *g = uc->uc_mcontext.gregs;
	uint64_t pc = (uint64_t)g[REG_RIP];
	struct rs_call *h;
	if (c->in && pc == c->pc - 2 && (uint64_t)g[REG_RAX] == c->number && same_arguments(c, g) && is_syscall(pc)) {
		if (!never_interrupted(c) && other_waits(uc->uc_sigmask.__val[0], true) && !would_return(c)) {
			g[REG_RAX] = -EINTR;
			g[REG_RIP] += 2;
			return;
		}
	} else if (g[REG_RAX] == -EINTR && is_syscall(pc - 2)) {
		if (!(c->in && c->pc == pc && same_arguments(c, g)) && !interrupted(c, g))
			return;
		if ((h = hooked(g, true)))
			take_beginning(c, h);
		else
			begins_now(c);
		if (put_back(c, uc))
			shorten(c, g, h);
		return;
	}
	/* It was about to make its call, perhaps not for the first time. */
	if ((h = hooked(g, false)) && (uint64_t)g[REG_RAX] == h->number && row_of(h->number) >= 0) {
		take_beginning(c, h);
		shorten(c, g, h);
	}
}
