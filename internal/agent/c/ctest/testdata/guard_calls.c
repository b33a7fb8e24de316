// System calls of one thread in an epoch that is recorded, gone back in and executed again, three times: the same results, the same memory, nothing outside done twice.
// The arguments: the part, a directory, and how far behind the agent's pthread_create rs_guard_begin, _checkpoint, _rollback, _sys_verdict and rs_vdso_hook are. Prints "well", or what differed; for parts that must diverge, how.
// All calls are made by syscall(), the agent's, which goes by the hook of patched sites.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

struct verdict { uint64_t why, event, was, is, lost, events, end, class[8], replayed, kept, ended; };
enum { LONGS = 4096, TIMES = 3 };
// What an epoch gave: results in order, and all memory that calls wrote to.
static struct state { long n, result[LONGS]; char memory[1 << 16]; size_t used; } now;
// No rollback touches it.
static struct shared { struct state recorded; char heard[8192]; struct verdict verdict; int times; volatile int go; } *shared;
static char dir[256];
static int outside[2];
static void (*verdict)(struct verdict *, bool);
static char *vdso_hook;

static long note(long r)
{
	now.result[now.n++] = r < 0 ? -errno : r;
	return r;
}

static void *room(size_t n)
{
	void *p = now.memory + now.used;
	now.used += (n + 15) & ~15ul;
	return p;
}

#define CALL(...) note(syscall(__VA_ARGS__))

static const char *file(const char *name)
{
	char *path = room(300);
	strcpy(path, dir);
	strcat(path, "/");
	return strcat(path, name);
}

static long opened(const char *name, int flags) { return CALL(SYS_openat, AT_FDCWD, file(name), flags, 0600); }

static void files(void)
{
	struct iovec v[2] = {{room(5), 5}, {room(64), 7}};
	long in = opened("in", O_RDONLY), out = opened("out", O_WRONLY | O_CREAT), more = opened("append", O_WRONLY | O_APPEND | O_CREAT);
	CALL(SYS_read, in, room(10), 10);
	CALL(SYS_pread64, in, room(10), 10, 100);
	CALL(SYS_lseek, in, 50, SEEK_SET);
	CALL(SYS_readv, in, v, 2);
	CALL(SYS_lseek, in, 0, SEEK_CUR);
	CALL(SYS_preadv, in, v, 2, 30, 0);
	CALL(SYS_fstat, in, room(sizeof(struct stat)));
	CALL(SYS_newfstatat, AT_FDCWD, file("in"), room(sizeof(struct stat)), 0);
	for (int i = 0; i < 20; i++) {
		CALL(SYS_write, out, "0123456789", 10);
		CALL(SYS_write, more, "line\n", 5);
	}
	CALL(SYS_lseek, out, 3, SEEK_SET);
	CALL(SYS_writev, out, v, 2);
	CALL(SYS_pwrite64, out, "end", 3, 400);
	CALL(SYS_write, 1, "said once\n", 10);
	CALL(SYS_lseek, in, -3, SEEK_END);
	CALL(SYS_read, in, room(10), 10); // three
	CALL(SYS_read, in, room(10), 10); // none
	CALL(SYS_fsync, out);
	CALL(SYS_mkdirat, AT_FDCWD, file("made"), 0700);
	CALL(SYS_renameat, AT_FDCWD, file("made"), AT_FDCWD, file("moved"));
	CALL(SYS_close, out);
	CALL(SYS_close, more);
	CALL(SYS_close, in);
	// A file that was written, read back, and has another reader.
	long both = opened("both", O_RDWR | O_CREAT);
	CALL(SYS_write, both, "what is here", 12);
	CALL(SYS_lseek, both, 5, SEEK_SET);
	CALL(SYS_read, both, room(7), 7);
	CALL(SYS_read, 0, room(7), 7); // of a file, at an offset that others share
	// One that has no name: what was read of it is there until the epoch is over.
	long unnamed = opened("unnamed", O_RDWR | O_CREAT);
	CALL(SYS_unlinkat, AT_FDCWD, file("unnamed"), 0);
	CALL(SYS_write, unnamed, "for a while", 11);
	CALL(SYS_pread64, unnamed, room(7), 7, 4);
	CALL(SYS_close, unnamed);
	CALL(SYS_pread64, unnamed, room(7), 7, 4);
	CALL(SYS_getdents64, opened(".", O_RDONLY | O_DIRECTORY), room(4096), 4096);
	CALL(SYS_readlinkat, AT_FDCWD, "/proc/self/exe", room(300), 300);
	CALL(SYS_read, CALL(SYS_openat, AT_FDCWD, "/proc/self/stat", O_RDONLY), room(600), 600);
}

// What is closed is closed, its number is the next one's, and what was read from it is read again.
static void descriptors(void)
{
	long a = opened("in", O_RDONLY);
	CALL(SYS_read, a, room(8), 8);
	CALL(SYS_close, a);
	CALL(SYS_read, a, room(8), 8);
	CALL(SYS_close, a);
	long b = opened("in2", O_RDONLY), c = CALL(SYS_dup, b);
	if (b != a)
		note(-1);
	CALL(SYS_read, b, room(8), 8);
	CALL(SYS_read, c, room(8), 8); // one offset
	CALL(SYS_dup3, opened("in", O_RDONLY), b, O_CLOEXEC);
	CALL(SYS_read, b, room(8), 8);
	CALL(SYS_read, c, room(8), 8);
	CALL(SYS_fcntl, b, F_GETFD);
	CALL(SYS_fcntl, b, F_DUPFD_CLOEXEC, 20);
	CALL(SYS_dup2, c, c);
	CALL(SYS_close, c);
	CALL(SYS_read, b, room(8), 8);
	for (int i = 0; i < 30; i++) {
		long d = opened("in", O_RDONLY);
		CALL(SYS_pread64, d, room(8), 8, i);
		CALL(SYS_close, d);
	}
	CALL(SYS_close, 1000000);
}

static void channels(void)
{
	int *p = room(8), *s = room(8);
	struct pollfd *f = room(2 * sizeof *f);
	struct epoll_event *e = room(4 * sizeof *e), one = {EPOLLIN, {.u64 = 77}};
	char *in = room(64);
	CALL(SYS_pipe2, p, O_NONBLOCK);
	CALL(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, s);
	CALL(SYS_read, p[0], in, 8); // EAGAIN
	CALL(SYS_write, p[1], "through the pipe", 16);
	f[0] = (struct pollfd){p[0], POLLIN, 0};
	f[1] = (struct pollfd){s[0], POLLIN | POLLOUT, 0};
	CALL(SYS_poll, f, 2, 0);
	CALL(SYS_ppoll, f, 2, &(struct timespec){1, 0}, NULL, 8);
	CALL(SYS_read, p[0], in, 64);
	CALL(SYS_read, p[0], in, 64);
	long ep = CALL(SYS_epoll_create1, 0);
	CALL(SYS_epoll_ctl, ep, EPOLL_CTL_ADD, s[0], &one);
	CALL(SYS_epoll_wait, ep, e, 4, 0);
	struct iovec v[2] = {{"ab", 2}, {"cdef", 4}}, w[2] = {{room(3), 3}, {room(30), 30}};
	struct msghdr out = {.msg_iov = v, .msg_iovlen = 2}, back = {.msg_iov = w, .msg_iovlen = 2, .msg_control = room(64), .msg_controllen = 64};
	CALL(SYS_sendmsg, s[1], &out, 0);
	CALL(SYS_epoll_wait, ep, e, 4, -1);
	CALL(SYS_recvmsg, s[0], &back, 0);
	CALL(SYS_sendto, s[0], "xyz", 3, 0, NULL, 0);
	CALL(SYS_recvfrom, s[1], room(16), 16, 0, NULL, NULL);
	socklen_t *n = room(4);
	*n = sizeof(int);
	CALL(SYS_getsockopt, s[0], SOL_SOCKET, SO_SNDBUF, room(8), n);
	CALL(SYS_shutdown, s[1], SHUT_WR);
	CALL(SYS_close, s[1]);
	CALL(SYS_read, s[0], in, 64); // 0
	CALL(SYS_ioctl, p[0], 0x541b /* FIONREAD */, room(4));
	long ev = CALL(SYS_eventfd2, 5, 0);
	CALL(SYS_read, ev, in, 8);
	// Whoever is outside answers with the number of messages it has had.
	for (int i = 0; i < 5; i++) {
		CALL(SYS_write, outside[0], "message", 8);
		CALL(SYS_read, outside[0], in, 64);
		note(*(long *)in);
	}
	CALL(SYS_close, p[1]);
	CALL(SYS_close, p[0]);
}

static long vdso(unsigned row, const char *name, void *a, void *b)
{
	void *function = dlsym(RTLD_DEFAULT, name);
	long r;
	register uint64_t r10 __asm__("r10") = row * 24ul;
	register void *r11 __asm__("r11") = function;
	register void *hook __asm__("r12") = vdso_hook;
	__asm__ volatile("movq %%rsp, %%rbx\n	andq $-16, %%rsp\n	call *%%r12\n	movq %%rbx, %%rsp\n"
			 : "=a"(r), "+r"(r10), "+r"(r11), "+D"(a), "+S"(b) : "r"(hook) : "rbx", "rcx", "rdx", "r8", "r9", "memory", "cc");
	return note((int)r);
}

static void times_and_chance(void)
{
	for (int i = 0; i < 3; i++) {
		CALL(SYS_clock_gettime, CLOCK_MONOTONIC, room(16));
		CALL(SYS_gettimeofday, room(16), room(8));
		CALL(SYS_time, room(8));
		CALL(SYS_times, room(sizeof(struct tms)));
		CALL(SYS_getrandom, room(40), 40, 0);
		CALL(SYS_getcpu, room(4), room(4), NULL);
		vdso(ROW_CLOCK_GETTIME, "clock_gettime", (void *)CLOCK_REALTIME, room(16));
		vdso(ROW_GETTIMEOFDAY, "gettimeofday", room(16), NULL);
		CALL(SYS_nanosleep, &(struct timespec){0, 1000000}, NULL);
	}
	CALL(SYS_getrusage, 0, room(144));
	CALL(SYS_uname, room(400));
	CALL(SYS_getcwd, room(300), 300);
	CALL(SYS_sched_getaffinity, 0, 128, room(128));
	CALL(SYS_setitimer, ITIMER_REAL, &(struct itimerval){{0, 0}, {1000, 0}}, room(32));
	CALL(SYS_getitimer, ITIMER_REAL, room(32));
	CALL(SYS_setitimer, ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 0}}, NULL);
	CALL(SYS_getpid);
	CALL(SYS_gettid);
	CALL(SYS_getppid);
}

static void fill(char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (char)(i * 7);
}

static void mappings(void)
{
	char *p = (char *)CALL(SYS_mmap, NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	fill(p, 1 << 16);
	CALL(SYS_munmap, p + 4096, 4096);
	CALL(SYS_mprotect, p, 4096, PROT_READ);
	char *q = (char *)CALL(SYS_mmap, NULL, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	fill(q, 1 << 20);
	q = (char *)CALL(SYS_mremap, q, 1 << 20, 1 << 23, MREMAP_MAYMOVE);
	note(q[12345]);
	CALL(SYS_madvise, q, 1 << 16, MADV_FREE);
	note(q[12345]);
	CALL(SYS_madvise, q + (1 << 16), 1 << 16, MADV_DONTNEED);
	note(q[(1 << 16) + 5]);
	long in = opened("in", O_RDONLY);
	char *m = (char *)CALL(SYS_mmap, NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE, in, 0);
	CALL(SYS_close, in);
	note(m[77]);
	m[78] = 'm';
	long top = CALL(SYS_brk, 0);
	CALL(SYS_brk, top + 8192);
	fill((char *)top, 8192);
	CALL(SYS_munmap, (void *)1, 4096); // EINVAL
	CALL(SYS_mmap, NULL, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0); // EINVAL
	char *fixed = (char *)CALL(SYS_mmap, p, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
	note(*fixed);
}

static void masks(void)
{
	uint64_t set = 1 << (SIGUSR1 - 1), *old = room(8);
	CALL(SYS_rt_sigprocmask, SIG_BLOCK, &set, old, 8);
	CALL(SYS_tgkill, getpid(), gettid(), SIGUSR1);
	CALL(SYS_rt_sigpending, room(8), 8);
	CALL(SYS_rt_sigtimedwait, &set, room(128), &(struct timespec){0, 0}, 8);
	CALL(SYS_rt_sigtimedwait, &set, room(128), &(struct timespec){0, 0}, 8); // EAGAIN
	CALL(SYS_rt_sigprocmask, SIG_SETMASK, old, room(8), 8);
	CALL(SYS_sigaltstack, NULL, room(24));
	CALL(SYS_umask, 022);
	CALL(SYS_umask, CALL(SYS_umask, 077));
	CALL(SYS_getrlimit, 7, room(16));
	CALL(SYS_prctl, 15, "another", 0, 0, 0);
	CALL(SYS_prctl, 16, room(16), 0, 0, 0);
}

// Another thread, which waits in a call at the checkpoint and at the end: it hears, answers, and reads a file whose offset is its own.
static int to[2], from[2];
static struct heard { long n, result[64]; char text[64][16]; } heard;
static volatile int listener;
static void *listen_to(void *arg)
{
	long in = syscall(SYS_openat, AT_FDCWD, arg, O_RDONLY);
	listener = (int)gettid();
	for (;;) {
		char *text = heard.text[heard.n % 60];
		heard.result[heard.n++] = syscall(SYS_read, to[0], text, 16);
		heard.result[heard.n++] = syscall(SYS_read, in, heard.text[heard.n % 60], 3);
		heard.result[heard.n++] = syscall(SYS_clock_gettime, CLOCK_MONOTONIC, heard.text[heard.n % 60]);
		heard.result[heard.n++] = syscall(SYS_write, from[1], text, 16);
	}
	return NULL;
}

// It stands in its read.
static void wait_for_listener(void)
{
	char name[64], text[64] = "";
	do {
		snprintf(name, sizeof name, "/proc/self/task/%d/syscall", listener);
		int fd = open(name, O_RDONLY);
		if (fd < 0 || read(fd, text, 2) != 2)
			text[0] = 0;
		close(fd);
	} while (listener == 0 || strncmp(text, "0 ", 2) != 0);
}

static void threads(void)
{
	for (int i = 0; i < 10; i++) {
		char *out = room(16), *in = room(16);
		snprintf(out, 16, "number %d", i);
		CALL(SYS_write, to[1], out, 16);
		CALL(SYS_read, from[0], in, 16);
		note(strcmp(out, in));
	}
}

// A file that others changed between the recording and the re-execution.
static void changed(void)
{
	long in = opened("changed", O_RDONLY);
	CALL(SYS_read, in, room(10), 10);
}

static void other_number(void) { CALL(shared->times ? SYS_getuid : SYS_getppid); }
static void other_argument(void) { CALL(SYS_umask, shared->times ? 022 : 077); }
static void other_data(void)
{
	char *text = room(3);
	memcpy(text, shared->times ? "one" : "two", 3);
	CALL(SYS_write, opened("data", O_WRONLY | O_CREAT), text, 3);
}
// Of what is long: two words, two blocks of 64 bytes that have changed places, or a bit that is another.
static uint64_t page[512];
static void other_page(int what)
{
	for (uint64_t i = 0; i < 512; i++)
		page[i] = i;
	if (shared->times && what == 0)
		page[101] = 100, page[100] = 101;
	for (int i = 0; shared->times && what == 1 && i < 8; i++)
		page[8 + i] = 16 + i, page[16 + i] = 8 + i;
	if (shared->times && what == 2)
		page[500] ^= 1ul << 63;
	CALL(SYS_write, opened("data", O_WRONLY | O_CREAT), page, sizeof page);
}
static void other_words(void) { other_page(0); }
static void other_blocks(void) { other_page(1); }
static void other_bit(void) { other_page(2); }

// What was read in an epoch is overwritten: that is kept, or the epoch ends before.
static void overwritten(void)
{
	long both = opened("both", O_RDWR | O_CREAT);
	CALL(SYS_write, both, "0123456789", 10);
	CALL(SYS_pread64, both, room(4), 4, 0);
	CALL(SYS_pwrite64, both, "new", 3, 6); // not what was read
	verdict(&shared->verdict, false);
	note((long)shared->verdict.ended);
	CALL(SYS_pwrite64, both, "new", 3, 2);
	verdict(&shared->verdict, false);
	note((long)shared->verdict.ended);
	opened("both", O_RDWR | O_TRUNC);
	verdict(&shared->verdict, false);
	note((long)shared->verdict.ended);
}

static const struct { const char *name; void (*f)(void); bool diverges; } parts[] = {
	{"files", files, false}, {"descriptors", descriptors, false}, {"channels", channels, false}, {"times", times_and_chance, false}, {"mappings", mappings, false}, {"masks", masks, false}, {"threads", threads, false},
	{"changed", changed, true}, {"number", other_number, true}, {"argument", other_argument, true}, {"data", other_data, true}, {"words", other_words, true}, {"blocks", other_blocks, true}, {"bit", other_bit, true}, {"overwritten", overwritten, true},
};

// Answers each message with how many there were.
static void echo(int fd)
{
	char line[64];
	for (long n = 1; read(fd, line, sizeof line) > 0; n++)
		if (write(fd, &n, sizeof n) < 0)
			break;
	_exit(0);
}

// Lets go who stands where the re-execution diverged.
static void *watch(void *arg)
{
	while (!shared->go)
		;
	for (;;) {
		struct verdict v;
		verdict(&v, false);
		if (!v.why)
			continue;
		printf("why %lu event %lu, done again %lu\n", v.why, v.event, v.replayed);
		fflush(stdout);
		_exit(0);
	}
	return arg;
}

int main(int argc, char **argv)
{
	if (argc != 8)
		return 2;
	char *agent = dlsym(RTLD_DEFAULT, "pthread_create");
	long (*begin)(unsigned) = (long (*)(unsigned))(agent + atol(argv[3]));
	long (*checkpoint)(void) = (long (*)(void))(agent + atol(argv[4]));
	long (*rollback)(void) = (long (*)(void))(agent + atol(argv[5]));
	verdict = (void (*)(struct verdict *, bool))(agent + atol(argv[6]));
	vdso_hook = agent + atol(argv[7]);
	unsigned part = 0;
	while (part < sizeof parts / sizeof *parts && strcmp(parts[part].name, argv[1]) != 0)
		part++;
	if (part == sizeof parts / sizeof *parts)
		return 2;
	strcpy(dir, argv[2]);
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, outside) != 0)
		return 3;
	if (fork() == 0) {
		close(outside[0]);
		echo(outside[1]);
	}
	close(outside[1]);
	pthread_t w;
	if (parts[part].diverges)
		pthread_create(&w, NULL, watch, NULL);
	if (pipe(to) != 0 || pipe(from) != 0)
		return 3;
	long r = begin(32);
	if (parts[part].f == threads) {
		pthread_create(&w, NULL, listen_to, (void *)file("in"));
		wait_for_listener();
	}
	if (r == 0)
		r = checkpoint();
	bool again = shared->times;
	if (r < 0) {
		printf("begin: %ld\n", r);
		return 1;
	}
	parts[part].f();
	if (parts[part].diverges)
		CALL(SYS_getpid); // where a re-execution stops
	if (!again) {
		if (parts[part].f == threads)
			wait_for_listener();
		shared->recorded = now;
		memcpy(shared->heard, &heard, sizeof heard);
		if (parts[part].f == changed) {
			int fd = open(file("changed"), O_WRONLY);
			if (pwrite(fd, "X", 1, 4) != 1)
				return 3;
			close(fd);
		}
		if (parts[part].f == overwritten) {
			struct state *s = &shared->recorded;
			verdict(&shared->verdict, true);
			printf("ended %ld, %ld, %ld, lost %lu\n", s->result[4], s->result[6], s->result[8], shared->verdict.lost);
			return 0;
		}
		shared->times = shared->go = 1;
		rollback();
		return 4;
	}
	struct verdict v;
	// What the other thread does lags behind.
	for (long n = ((struct heard *)shared->heard)->n; parts[part].f == threads && (verdict(&v, false), !v.why) && *(volatile long *)&heard.n < n;)
		sched_yield();
	verdict(&v, true);
	if (memcmp(shared->heard, &heard, sizeof heard) != 0)
		printf("the other thread heard something else: %ld, was %ld\n", heard.n, ((struct heard *)shared->heard)->n);
	if (v.why || v.events != v.end || v.end == 0 || v.lost)
		printf("why %lu at %lu: was %#lx is %#lx; events %lu of %lu, lost %lu\n", v.why, v.event, v.was, v.is, v.events, v.end, v.lost);
	for (long i = 0; i < now.n || i < shared->recorded.n; i++)
		if (now.result[i] != shared->recorded.result[i])
			printf("result %ld: %ld, was %ld\n", i, now.result[i], shared->recorded.result[i]);
	if (memcmp(now.memory, shared->recorded.memory, sizeof now.memory) != 0)
		for (size_t i = 0; i < sizeof now.memory; i++)
			if (now.memory[i] != shared->recorded.memory[i]) {
				printf("memory at %zu: %d, was %d\n", i, now.memory[i], shared->recorded.memory[i]);
				break;
			}
	if (shared->times++ < TIMES)
		rollback();
	printf("well %d\n", shared->times - 1);
	return 0;
}
