/* os.c: memory, signal masks, locks, time: what the agent asks of the kernel. Raw system calls only; nothing here touches errno. */
#include "core.h"
#include "dispatch.h"
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>

uint64_t rs_agent_bytes;

/* The start of a process maps a handful of tables: one mapping for all costs it less. */
enum { PIECE = 1 << 20, LARGE = PIECE / 2 };
static struct { uintptr_t at, end; } piece;

static uintptr_t place; /* 0: where the kernel likes */

void rs_os_place(uintptr_t at) { place = at; }
bool rs_os_placed(void) { return place != 0; }

static uintptr_t next_place(size_t bytes) { return place ? __atomic_fetch_add(&place, bytes + RS_PAGE, __ATOMIC_RELAXED) : 0; }

static uintptr_t map(uintptr_t wish, size_t bytes)
{
	long p = RS_SYS6(SYS_mmap, wish, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p < 0 && p > -4096)
		return 0;
	RS_SYS3(SYS_madvise, p, bytes, MADV_DONTDUMP);
	return (uintptr_t)p;
}

void rs_os_piece_begin(void)
{
	piece.at = map(next_place(PIECE), PIECE);
	piece.end = piece.at ? piece.at + PIECE : 0;
}

void rs_os_piece_end(void)
{
	if (piece.at < piece.end)
		RS_SYS2(SYS_munmap, piece.at, piece.end - piece.at);
	piece.at = piece.end = 0;
}

struct rs_range rs_os_ranges[RS_OS_RANGES];
static uint32_t ranges;

uint32_t rs_os_range_count(void)
{
	uint32_t n = __atomic_load_n(&ranges, __ATOMIC_ACQUIRE);
	return n < RS_OS_RANGES ? n : RS_OS_RANGES;
}

static void note_range(uintptr_t lo, uintptr_t hi)
{
	uint32_t i = __atomic_fetch_add(&ranges, 1, __ATOMIC_ACQ_REL);
	if (i < RS_OS_RANGES)
		rs_os_ranges[i] = (struct rs_range){lo, hi};
}

void rs_os_own(uintptr_t at, size_t bytes) { note_range(at, at + bytes); }

static void *mapped(uintptr_t p, size_t bytes)
{
	if (!p)
		return NULL;
	note_range(p, p + bytes);
	uint64_t sum = __atomic_add_fetch(&rs_agent_bytes, bytes, __ATOMIC_RELAXED);
	__atomic_store_n(&rs_counters->agent_bytes, sum, __ATOMIC_RELAXED);
	return (void *)p;
}

void *rs_os_map(size_t bytes)
{
	if (rs_sandboxed)
		return NULL; /* the program's filter may kill for it */
	bytes = (bytes + RS_PAGE - 1) & -RS_PAGE;
	uintptr_t p = piece.at;
	if (bytes < LARGE && bytes <= piece.end - p)
		piece.at += bytes;
	else
		p = map(next_place(bytes), bytes);
	return mapped(p, bytes);
}

void *rs_os_map_numbered(uint32_t number, size_t bytes)
{
	if (!place || rs_sandboxed || bytes > RS_OS_NUMBERED_BYTES)
		return rs_os_map(bytes);
	bytes = (bytes + RS_PAGE - 1) & -RS_PAGE;
	return mapped(map(RS_OS_NUMBERED + (uintptr_t)number * RS_OS_NUMBERED_BYTES, bytes), bytes);
}

void rs_os_unmap(void *p, size_t bytes)
{
	if (rs_sandboxed)
		return;
	bytes = (bytes + RS_PAGE - 1) & -RS_PAGE;
	for (uint32_t i = rs_os_range_count(); i-- > 0;)
		if (rs_os_ranges[i].lo == (uintptr_t)p) {
			rs_os_ranges[i] = (struct rs_range){0, 0};
			break;
		}
	RS_SYS2(SYS_munmap, p, bytes);
	uint64_t sum = __atomic_sub_fetch(&rs_agent_bytes, bytes, __ATOMIC_RELAXED);
	__atomic_store_n(&rs_counters->agent_bytes, sum, __ATOMIC_RELAXED);
}

uint64_t rs_os_open;

uint64_t rs_os_no_signals(void)
{
	uint64_t all = (rs_share_on ? ~(1ull << (SIGSEGV - 1)) : ~0ull) & ~rs_os_open, old = 0; /* a fault by a key of ours may come */
	RS_SYS4(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, 8);
	return old;
}

void rs_os_signals(uint64_t mask)
{
	RS_SYS4(SYS_rt_sigprocmask, SIG_SETMASK, &mask, 0, 8);
}

/* In a box, and with nobody to wake or wait for but Go: a program with a single thread never calls futex, so its filter may not know it. Go looks
 * at the rings without a bell, too. */
static bool alone_in_box(void) { return RS_UNLIKELY(rs_sandboxed) && rs_live_threads <= 1; }

long rs_os_wait(uint32_t *word, uint32_t value, bool shared, unsigned ms)
{
	if (alone_in_box()) {
		for (int i = 0; i < 20000 && __atomic_load_n(word, __ATOMIC_ACQUIRE) == value; i++)
			__builtin_ia32_pause();
		return -ETIMEDOUT;
	}
	struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
	return RS_SYS4(SYS_futex, word, shared ? FUTEX_WAIT : FUTEX_WAIT_PRIVATE, value, &ts);
}

void rs_os_wake(uint32_t *word, bool shared)
{
	if (!alone_in_box())
		RS_SYS3(SYS_futex, word, shared ? FUTEX_WAKE : FUTEX_WAKE_PRIVATE, 1 << 30);
}

/* 0 free, 1 held, 2 held and waited for. */
void rs_lock(struct rs_lock *l)
{
	uint32_t free = 0;
	if (__atomic_compare_exchange_n(&l->word, &free, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return;
	while (__atomic_exchange_n(&l->word, 2, __ATOMIC_ACQUIRE) != 0)
		rs_os_wait(&l->word, 2, false, 1000);
}

bool rs_lock_try(struct rs_lock *l)
{
	for (int i = 0; i < 100; i++) {
		uint32_t free = 0;
		if (__atomic_compare_exchange_n(&l->word, &free, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return true;
		__builtin_ia32_pause();
	}
	return false;
}

void rs_unlock(struct rs_lock *l)
{
	if (__atomic_exchange_n(&l->word, 0, __ATOMIC_RELEASE) == 2)
		rs_os_wake(&l->word, false);
}

uint32_t rs_os_ms(void)
{
	if (alone_in_box())
		return (uint32_t)(__builtin_ia32_rdtsc() >> 21); /* about: what waits so long counts in seconds */
	struct timespec ts = {0};
	RS_SYS2(SYS_clock_gettime, CLOCK_MONOTONIC, &ts);
	return (uint32_t)((uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000);
}

uint32_t rs_os_pid(void) { return (uint32_t)RS_SYS0(SYS_getpid); }
uint32_t rs_os_tid(void) { return (uint32_t)RS_SYS0(SYS_gettid); }

/* Forwards, if they overlap. `rep movsb` takes some 20 ns before its first byte: what is short, as most is, is had whole and then stored. */
void rs_os_copy(void *to, const void *from, size_t n)
{
	typedef uint64_t word __attribute__((may_alias, aligned(1)));
	typedef uint32_t half __attribute__((may_alias, aligned(1)));
	const char *f = from;
	char *t = to;
	if (n <= 32 && n >= 8) {
		size_t m = n > 16 ? 8 : 0; /* the middle two are the outer ones again, if there is no middle */
		uint64_t a = *(const word *)f, b = *(const word *)(f + m), c = *(const word *)(f + n - 8 - m), d = *(const word *)(f + n - 8);
		*(volatile word *)t = a;
		*(volatile word *)(t + m) = b;
		*(volatile word *)(t + n - 8 - m) = c;
		*(volatile word *)(t + n - 8) = d;
		return;
	}
	if (n < 8 && n >= 4) {
		uint32_t a = *(const half *)f, b = *(const half *)(f + n - 4);
		*(volatile half *)t = a;
		*(volatile half *)(t + n - 4) = b;
		return;
	}
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
}

void rs_os_clear(void *p, size_t n)
{
	__asm__ volatile("rep stosb" : "+D"(p), "+c"(n) : "a"(0) : "memory");
}

size_t rs_os_length(const char *s)
{
	size_t n = 0;
	while (s[n])
		n++;
	return n;
}

bool rs_os_equal(const void *a, const void *b, size_t n)
{
	const char *p = a, *q = b;
	for (size_t i = 0; i < n; i++)
		if (p[i] != q[i])
			return false;
	return true;
}

void rs_put_bytes(uint64_t *w, const void *p, size_t n)
{
	if (n == 0)
		return;
	w[(n - 1) / 8] = 0;
	rs_os_copy(w, p, n);
}

/* The new task's first steps cannot be C: it runs on another stack, and what it would return to is its parent's. CLONE_VFORK holds the caller until
 * the task has ended; CLONE_THREAD keeps our pid towards the socket's peer, and makes the task nobody's child. */
void rs_os_aside(void (*fn)(void *), void *arg)
{
	const size_t size = 64 << 10;
	char *stack = rs_os_map(size);
	long r = -ENOMEM;
	if (stack) {
		long flags = CLONE_VM | CLONE_FS | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_VFORK | CLONE_UNTRACED;
		register void (*callee)(void *) __asm__("r12") = fn;
		register void *callee_arg __asm__("r13") = arg;
		volatile uint8_t *selector = rs_dispatch_open();
		__asm__ volatile("xor %%edx, %%edx\n\t"
				 "xor %%r10d, %%r10d\n\t"
				 "xor %%r8d, %%r8d\n\t"
				 "syscall\n\t"
				 "test %%rax, %%rax\n\t"
				 "jnz 1f\n\t"
				 "xor %%ebp, %%ebp\n\t"
				 "mov %%r13, %%rdi\n\t"
				 "call *%[callee]\n\t"
				 "mov %[exit], %%eax\n\t"
				 "xor %%edi, %%edi\n\t"
				 "syscall\n\t"
				 "ud2\n"
				 "1:"
				 : "=a"(r)
				 : "a"(SYS_clone), "D"(flags), "S"(stack + size), [callee] "r"(callee), [exit] "i"(SYS_exit), "r"(callee_arg)
				 : "rcx", "rdx", "r8", "r10", "r11", "memory", "cc");
		if (selector)
			*selector = 1;
		rs_os_unmap(stack, size);
	}
	if (r < 0)
		fn(arg);
}

void rs_os_apart(void (*fn)(void *), void *arg)
{
	if (rs_live_threads > 1) {
		rs_os_aside(fn, arg);
		return;
	}
	struct rlimit64 was, more;
	bool raise = RS_SYS4(SYS_prlimit64, 0, RLIMIT_NOFILE, 0, &was) == 0 && was.rlim_cur < 80 && was.rlim_cur < was.rlim_max;
	if (raise) {
		more = was;
		more.rlim_cur = was.rlim_max < 80 ? was.rlim_max : 80;
		RS_SYS4(SYS_prlimit64, 0, RLIMIT_NOFILE, &more, 0);
	}
	fn(arg);
	if (raise)
		RS_SYS4(SYS_prlimit64, 0, RLIMIT_NOFILE, &was, 0);
}

static char *put(char *at, const char *s)
{
	while (*s)
		*at++ = *s++;
	return at;
}

static char *put_number(char *at, unsigned long v)
{
	char d[24];
	int n = 0;
	do
		d[n++] = (char)('0' + v % 10);
	while (v /= 10);
	while (n)
		*at++ = d[--n];
	return at;
}

bool rs_os_in_futex(uint32_t tid)
{
	char name[48], text[8];
	if (rs_sandboxed)
		return false;
	char *end = put(put_number(put(name, "/proc/self/task/"), tid), "/syscall");
	*end = 0;
	long fd = RS_SYS4(SYS_openat, AT_FDCWD, name, O_RDONLY | O_CLOEXEC, 0);
	if (fd < 0)
		return false;
	long n = RS_SYS3(SYS_read, fd, text, 4);
	RS_SYS1(SYS_close, fd);
	return n == 4 && rs_os_equal(text, "202 ", 4);
}

static const char *error_name(long e)
{
	switch (e) {
	case ENOMEM: return "ENOMEM, no memory";
	case EMFILE: return "EMFILE, too many open files in this process";
	case ENFILE: return "ENFILE, too many open files in the system";
	case EPERM: return "EPERM, not permitted";
	case EACCES: return "EACCES, permission denied";
	case ENOSYS: return "ENOSYS, not offered by this kernel or sandbox";
	case EFBIG: return "EFBIG, limit on file size (ulimit -f)";
	case ETIMEDOUT: case EAGAIN: return "no answer";
	case EPROTO: return "unexpected answer";
	}
	return NULL;
}

void rs_os_say_begin(void)
{
	struct stat st;
	if (!rs_ctl->error_ino && RS_SYS2(SYS_fstat, 2, &st) == 0) {
		rs_ctl->error_dev = st.st_dev;
		__atomic_store_n(&rs_ctl->error_ino, st.st_ino, __ATOMIC_RELEASE);
	}
}

/* Standard error may be a file of the program's, or a pipe from which it reads what its children have to say. */
static bool is_users(void)
{
	struct stat st;
	uint64_t ino = rs_ctl ? __atomic_load_n(&rs_ctl->error_ino, __ATOMIC_ACQUIRE) : 0;
	return !ino || (RS_SYS2(SYS_fstat, 2, &st) == 0 && st.st_ino == ino && st.st_dev == rs_ctl->error_dev);
}

/* Does not wait when stderr is full, and does not kill the program with a SIGPIPE of ours when nobody reads it. */
void rs_os_say(const char *what, long error)
{
	if (!is_users())
		return;
	char line[300], *at = put(line, "ripstop: process ");
	at = put_number(at, rs_os_pid());
	at = put(put(at, ": "), what);
	if (error) {
		const char *name = error_name(-error);
		at = put(at, " (");
		at = name ? put(at, name) : put_number(put(at, "error "), (unsigned long)-error);
		at = put(at, ")");
	}
	*at++ = '\n';
	struct pollfd p = {.fd = 2, .events = POLLOUT};
	struct timespec now = {0};
	uint64_t old = rs_os_no_signals(), pending = 0, pipe = 1ull << (SIGPIPE - 1);
	RS_SYS2(SYS_rt_sigpending, &pending, 8);
	if (RS_SYS3(SYS_poll, &p, 1, 0) == 1 && RS_SYS3(SYS_write, 2, line, at - line) == -EPIPE && !(pending & pipe))
		RS_SYS4(SYS_rt_sigtimedwait, &pipe, 0, &now, 8);
	rs_os_signals(old);
}
