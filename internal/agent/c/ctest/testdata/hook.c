/* The hook of system-call sites, by itself: this program holds syshook.c, the trampolines that jump to it, and counts of its own. Each part prints "ok NAME" and fails
 * by a message and status 1. */
#include "../../syshook.c"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(x, ...) do { if (!(x)) { fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #x); fprintf(stderr, __VA_ARGS__); fprintf(stderr, "\n"); exit(1); } } while (0)

/* --- what calls.c and the agent have ------------------------------------------------------------------------------------------------------- */

uint32_t rs_active = 1, rs_guard_on, rs_dispatch_on;
long rs_dispatch_program6(long n, long a, long b, long c, long d, long e, long f) { return n + a + b + c + d + e + f; }
__thread char *rs_guard_below;
__thread struct rs_guard_alt rs_guard_alt;
long rs_guard_vdso_kept(long a, long b, long c, long d, long e, long f, uint64_t offset, void *function, uintptr_t sp) { (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)offset, (void)function, (void)sp; return 0; }
long rs_guard_vdso(long a, long b, long c, long d, long e, long f, uint64_t offset, void *function) { (void)a, (void)b, (void)c, (void)d, (void)e, (void)f, (void)offset, (void)function; return 0; }
__thread struct rs_calls *rs_calls_tls;
struct rs_calls rs_calls_pending, *rs_calls_shared = &rs_calls_pending;
static struct rs_calls counts;
static int seen_before, seen_after, swallow;
static long swallowed;

bool rs_os_equal(const void *a, const void *b, size_t n) { return memcmp(a, b, n) == 0; }
void rs_os_copy(void *to, const void *from, size_t n) { memcpy(to, from, n); }
RS_GENERAL void rs_calls_add(struct rs_call *c)
{
	struct rs_call_count *row = &rs_calls_shared->row[c->row];
	__atomic_add_fetch(&row->calls, 1, __ATOMIC_RELAXED);
	__atomic_add_fetch(&row->errors, (uint64_t)c->result > -4096ull, __ATOMIC_RELAXED);
}
RS_GENERAL long rs_call_before(struct rs_call *c)
{
	seen_before++;
	if (swallow) {
		c->result = swallowed;
		return 0;
	}
	c->arg[0] ^= 0; /* as the kernel gets it */
	return 1;
}
RS_GENERAL long rs_call_after(struct rs_call *c) { (void)c; seen_after++; return 0; }
struct rs_guard_log *rs_guard_self(void) { return NULL; }
char rs_guard_yields[1]; /* rs_call_before never asks for it */
bool rs_guard_signal_next(const struct rs_guard_log *t) { (void)t; return false; }
bool rs_guard_waits_for_ours(const struct rs_call *c) { (void)c; return false; }

static void all(uint8_t class) { memset(rs_call_class, class, sizeof rs_call_class); }

/* --- a system call with every register given and looked at ------------------------------------------------------------------------------------ */

struct state { uint64_t rax, rdi, rsi, rdx, r10, r8, r9, rbx, rbp, r12, r13, r14, r15, rcx, r11, flags, red[16]; __attribute__((aligned(64))) uint8_t xmm[16][16]; };
void native_call(struct state *s);
void hooked_call(struct state *s);
extern char native_next[], hooked_next[], hooked_begin[], hooked_end[];

#define XMMS_IN "	movaps 256(%rdi), %xmm0\n	movaps 272(%rdi), %xmm1\n	movaps 288(%rdi), %xmm2\n	movaps 304(%rdi), %xmm3\n	movaps 320(%rdi), %xmm4\n" \
	"	movaps 336(%rdi), %xmm5\n	movaps 352(%rdi), %xmm6\n	movaps 368(%rdi), %xmm7\n	movaps 384(%rdi), %xmm8\n	movaps 400(%rdi), %xmm9\n" \
	"	movaps 416(%rdi), %xmm10\n	movaps 432(%rdi), %xmm11\n	movaps 448(%rdi), %xmm12\n	movaps 464(%rdi), %xmm13\n	movaps 480(%rdi), %xmm14\n	movaps 496(%rdi), %xmm15\n"
#define XMMS_OUT "	movaps %xmm0, 256(%rdi)\n	movaps %xmm1, 272(%rdi)\n	movaps %xmm2, 288(%rdi)\n	movaps %xmm3, 304(%rdi)\n	movaps %xmm4, 320(%rdi)\n" \
	"	movaps %xmm5, 336(%rdi)\n	movaps %xmm6, 352(%rdi)\n	movaps %xmm7, 368(%rdi)\n	movaps %xmm8, 384(%rdi)\n	movaps %xmm9, 400(%rdi)\n" \
	"	movaps %xmm10, 416(%rdi)\n	movaps %xmm11, 432(%rdi)\n	movaps %xmm12, 448(%rdi)\n	movaps %xmm13, 464(%rdi)\n	movaps %xmm14, 480(%rdi)\n	movaps %xmm15, 496(%rdi)\n"
_Static_assert(offsetof(struct state, red) == 128 && offsetof(struct state, xmm) == 256, "");
/* The pointer to the state lies above the red zone, at rsp + 8 and on. */
#define BEFORE(name) ".text\n.globl " name "_call\n.type " name "_call, @function\n" name "_call:\n" \
	"	pushq %rbx\n	pushq %rbp\n	pushq %r12\n	pushq %r13\n	pushq %r14\n	pushq %r15\n	pushq %rdi\n	subq $16, %rsp\n" \
	"	movl $16, %ecx\n" \
	"1:	movq 120(%rdi,%rcx,8), %rax\n	movq %rax, -136(%rsp,%rcx,8)\n	decl %ecx\n	jnz 1b\n" XMMS_IN \
	"	movq (%rdi), %rax\n	movq 16(%rdi), %rsi\n	movq 24(%rdi), %rdx\n	movq 32(%rdi), %r10\n	movq 40(%rdi), %r8\n	movq 48(%rdi), %r9\n" \
	"	movq 56(%rdi), %rbx\n	movq 64(%rdi), %rbp\n	movq 72(%rdi), %r12\n	movq 80(%rdi), %r13\n	movq 88(%rdi), %r14\n	movq 96(%rdi), %r15\n" \
	/* the flags by way of a place above the red zone */ \
	"	movq 120(%rdi), %r11\n	movq %r11, 8(%rsp)\n	leaq 8(%rsp), %rsp\n	popfq\n	leaq -16(%rsp), %rsp\n" \
	"	movq 8(%rdi), %rdi\n"
#define AFTER \
	"	movq %rdi, (%rsp)\n" /* (%rsp), 8(%rsp) are above the red zone */ \
	"	leaq 16(%rsp), %rsp\n	pushfq\n	leaq -8(%rsp), %rsp\n" \
	"	movq 16(%rsp), %rdi\n" \
	"	movq %rax, (%rdi)\n	movq %rsi, 16(%rdi)\n	movq %rdx, 24(%rdi)\n	movq %r10, 32(%rdi)\n	movq %r8, 40(%rdi)\n	movq %r9, 48(%rdi)\n" \
	"	movq %rbx, 56(%rdi)\n	movq %rbp, 64(%rdi)\n	movq %r12, 72(%rdi)\n	movq %r13, 80(%rdi)\n	movq %r14, 88(%rdi)\n	movq %r15, 96(%rdi)\n" \
	"	movq %rcx, 104(%rdi)\n	movq %r11, 112(%rdi)\n" \
	"	movq (%rsp), %rax\n	movq %rax, 8(%rdi)\n	movq 8(%rsp), %rax\n	movq %rax, 120(%rdi)\n	cld\n" \
	"	movl $16, %ecx\n" \
	"1:	movq -136(%rsp,%rcx,8), %rax\n	movq %rax, 120(%rdi,%rcx,8)\n	decl %ecx\n	jnz 1b\n" XMMS_OUT \
	"	addq $24, %rsp\n	popq %r15\n	popq %r14\n	popq %r13\n	popq %r12\n	popq %rbp\n	popq %rbx\n	ret\n"
__asm__(BEFORE("native") "	syscall\n.globl native_next\nnative_next:\n" AFTER
	BEFORE("hooked") "	jmp 3f\n	syscall\n.globl hooked_next\nhooked_next:\n" AFTER
	".globl hooked_begin\nhooked_begin:\n"
	"3:	leaq 2f(%rip), %rcx\n	jmp rs_syscall_hook\n2:	syscall\n	leaq hooked_next(%rip), %rcx\n	jmp hooked_next\n"
	".globl hooked_end\nhooked_end:\n");

/* --- the same for C ---------------------------------------------------------------------------------------------------------------------------- */

static __attribute__((noinline)) long hooked(long n, long a, long b, long c)
{
	long r;
	__asm__ volatile("	leaq 1f(%%rip), %%rcx\n	jmp rs_syscall_hook\n1:	syscall\n	leaq 2f(%%rip), %%rcx\n2:\n"
		: "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory", "cc");
	return r;
}

static uint64_t seed = 88172645463325252ull;
static uint64_t rnd(void) { seed ^= seed << 13; seed ^= seed >> 7; return seed ^= seed << 17; }

enum { ARITH = 0x8d5, DIRECTION = 0x400, ALWAYS = 0x202 };

static void fill(struct state *s, long n, long a, long b, long c)
{
	for (size_t i = 0; i < sizeof *s / 8; i++)
		((uint64_t *)s)[i] = rnd();
	s->rax = (uint64_t)n;
	s->rdi = (uint64_t)a;
	s->rsi = (uint64_t)b;
	s->rdx = (uint64_t)c;
	s->flags = (s->flags & (ARITH | DIRECTION)) | ALWAYS;
}

struct one { long n, a, b, c; };
static const struct one some[] = {
	{SYS_getppid, 1, 2, 3}, {SYS_close, -1, 5, 6}, {SYS_lseek, -7, 0, 0}, {100000, 1, 2, 3}, {-1, 1, 2, 3}, {600, 0, 0, 0}, {511, 0, 0, 0}, {504, 0, 0, 0},
	{SYS_access, 8, 0, 0} /* EFAULT */, {0x100000000 | SYS_getppid, 0, 0, 0}, {SYS_getppid | 0x40000000, 0, 0, 0},
};

static void registers(void)
{
	for (int round = 0; round < 4000; round++) {
		const struct one *o = &some[round % (sizeof some / sizeof *some)];
		struct state before, want, got;
		fill(&before, o->n, o->a, o->b, o->c);
		want = got = before;
		all((uint8_t)(round / 11 % 4));
		rs_active = round / 50 % 3 != 0;
		rs_calls_tls = round / 150 % 3 ? &counts : NULL;
		seen_before = seen_after = 0;
		swallow = round % 5 == 0 && rs_call_class[0] == RS_CALL_SEE;
		native_call(&want);
		swallowed = (long)want.rax;
		hooked_call(&got);
		CHECK(want.rcx == (uint64_t)native_next && got.rcx == (uint64_t)hooked_next, "rcx %lx and %lx", want.rcx, got.rcx);
		want.rcx = got.rcx;
		for (size_t i = 0; i < sizeof want / 8; i++)
			CHECK(((uint64_t *)&want)[i] == ((uint64_t *)&got)[i], "call %lx class %d: word %zu natively %lx, hooked %lx, was %lx", o->n, rs_call_class[0], i,
				((uint64_t *)&want)[i], ((uint64_t *)&got)[i], ((uint64_t *)&before)[i]);
		CHECK(seen_before == (rs_call_class[0] == RS_CALL_SEE) && seen_after == (seen_before && !swallow), "%d %d", seen_before, seen_after);
	}
	rs_active = 1;
	swallow = 0;
	printf("ok registers\n");
}

static void counting(void)
{
	all(RS_CALL_COUNT);
	memset(&counts, 0, sizeof counts);
	memset(&rs_calls_pending, 0, sizeof rs_calls_pending);
	rs_calls_tls = &counts;
	for (int i = 0; i < 1000; i++) {
		hooked(SYS_getppid, 0, 0, 0);
		CHECK(hooked(SYS_close, -1, 0, 0) == -EBADF, "close");
		CHECK(hooked(7777, 0, 0, 0) == -ENOSYS, "7777");
	}
	CHECK(counts.row[SYS_getppid].calls == 1000 && counts.row[SYS_getppid].errors == 0, "getppid %lu", counts.row[SYS_getppid].calls);
	CHECK(counts.row[SYS_close].calls == 1000 && counts.row[SYS_close].errors == 1000, "close %lu %lu", counts.row[SYS_close].calls, counts.row[SYS_close].errors);
	CHECK(counts.row[RS_CALL_OTHER].calls == 1000 && counts.row[RS_CALL_OTHER].errors == 1000, "other %lu", counts.row[RS_CALL_OTHER].calls);
	CHECK(counts.row[SYS_getppid].ticks > 0, "no ticks");
	/* mmap gives addresses, which are no errors */
	long p = hooked(SYS_mmap, 0, 4096, PROT_READ);
	CHECK(p == -EBADF || p > 0 || p == -EINVAL, "mmap %ld", p);
	rs_calls_tls = NULL;
	hooked(SYS_getppid, 0, 0, 0);
	CHECK(rs_calls_pending.row[SYS_getppid].calls == 1 && counts.row[SYS_getppid].calls == 1000, "shared %lu", rs_calls_pending.row[SYS_getppid].calls);
	rs_calls_tls = &counts;
	rs_call_class[SYS_getppid] = RS_CALL_PASS;
	hooked(SYS_getppid, 0, 0, 0);
	CHECK(counts.row[SYS_getppid].calls == 1000, "passed and counted");
	printf("ok counting\n");
}

/* --- every instruction of the hook, as a handler would see it ----------------------------------------------------------------------------------------- */

static struct state entry;
static long result_wanted;
static volatile int steps, shown_site, shown_next, bad;
static bool in_hook;

static void stepped(int sig, siginfo_t *info, void *context)
{
	(void)sig; (void)info;
	greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs, real[NGREG], was[NGREG], shown[NGREG];
	memcpy(real, g, sizeof real);
	uintptr_t pc = (uintptr_t)g[REG_RIP];
	steps++;
	bool view = rs_hook_view(g, was, shown);
	in_hook = (pc >= (uintptr_t)rs_syscall_hook && pc < (uintptr_t)rs_syscall_hook_end);
	if (in_hook && !view) {
		fprintf(stderr, "not shown at hook+%#lx\n", pc - (uintptr_t)rs_syscall_hook);
		bad++;
	}
	if (pc == (uintptr_t)hooked_next)
		g[REG_EFL] &= ~0x100ll;
	if (!view)
		return;
	bool site = g[REG_RIP] == (greg_t)hooked_next - 2, next = g[REG_RIP] == (greg_t)hooked_next;
	shown_site += site;
	shown_next += next;
	uint64_t flags = (uint64_t)g[REG_EFL] & (ARITH | DIRECTION);
	bool right = (site || next) && (uint64_t)g[REG_RAX] == (site ? entry.rax : (uint64_t)result_wanted) && (uint64_t)g[REG_RDI] == entry.rdi &&
		(uint64_t)g[REG_RSI] == entry.rsi && (uint64_t)g[REG_RDX] == entry.rdx && (uint64_t)g[REG_R10] == entry.r10 && (uint64_t)g[REG_R8] == entry.r8 &&
		(uint64_t)g[REG_R9] == entry.r9 && (uint64_t)g[REG_RBX] == entry.rbx && (uint64_t)g[REG_RBP] == entry.rbp && (uint64_t)g[REG_R12] == entry.r12 &&
		(uint64_t)g[REG_R15] == entry.r15 && flags == (entry.flags & (ARITH | DIRECTION)) &&
		(!next || (g[REG_RCX] == g[REG_RIP] && ((uint64_t)g[REG_R11] & (ARITH | DIRECTION)) == (entry.flags & (ARITH | DIRECTION))));
	if (!right) {
		fprintf(stderr, "hook+%#lx: rip %s rax %llx rdx %llx rdi %llx rcx %llx r11 %llx flags %lx want %lx, entry rax %lx rdx %lx rdi %lx\n", pc - (uintptr_t)rs_syscall_hook,
			site ? "site" : next ? "next" : "?", g[REG_RAX], g[REG_RDX], g[REG_RDI], g[REG_RCX], g[REG_R11], flags, entry.flags & (ARITH | DIRECTION), entry.rax, entry.rdx, entry.rdi);
		bad++;
	}
	rs_hook_back(g, was, shown);
	if (memcmp(g, real, sizeof real) != 0) {
		fprintf(stderr, "hook+%#lx: not put back\n", pc - (uintptr_t)rs_syscall_hook);
		bad++;
	}
}

static void views(void)
{
	struct sigaction sa = {.sa_sigaction = stepped, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	stack_t alternate = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
	sigaltstack(&alternate, NULL);
	sigaction(SIGTRAP, &sa, NULL);
	for (int round = 0; round < 44; round++) {
		const struct one *o = &some[round % (sizeof some / sizeof *some)];
		struct state want, got;
		fill(&entry, o->n, o->a, o->b, o->c);
		want = entry;
		native_call(&want);
		result_wanted = (long)want.rax;
		all((uint8_t)(round % 4));
		rs_calls_tls = round / 4 % 2 ? &counts : NULL;
		swallow = round / 11 % 2;
		swallowed = result_wanted;
		got = entry;
		got.flags |= 0x100; /* single steps */
		shown_site = shown_next = steps = 0;
		hooked_call(&got);
		CHECK(bad == 0, "round %d class %d: %d wrong", round, rs_call_class[0], bad);
		CHECK(steps > 20 && shown_site > 10, "%d steps, %d at the site", steps, shown_site);
		CHECK(shown_next > 5 || rs_call_class[0] == RS_CALL_PASS || rs_call_class[0] == RS_CALL_COUNT_PASS, "%d behind the site", shown_next);
		CHECK(got.rax == want.rax && got.rcx == (uint64_t)hooked_next, "rax %lx", got.rax);
	}
	swallow = 0;
	signal(SIGTRAP, SIG_DFL);
	printf("ok views\n");
}

/* --- signals ---------------------------------------------------------------------------------------------------------------------------------------------- */

static volatile long handled;
static sigjmp_buf out;
static volatile bool jump;

static void alarmed(int sig)
{
	(void)sig;
	handled++;
	for (int i = 0; i < 3; i++)
		hooked(SYS_getppid, 0, 0, 0);
	if (jump && handled % 2)
		siglongjmp(out, 1);
}

static void storm(void)
{
	all(RS_CALL_COUNT);
	memset(&counts, 0, sizeof counts);
	rs_calls_tls = &counts;
	struct sigaction sa = {.sa_handler = alarmed, .sa_flags = SA_RESTART};
	sigaction(SIGALRM, &sa, NULL);
	struct itimerval often = {{0, 50}, {0, 50}}, never = {{0, 0}, {0, 0}};
	handled = 0;
	setitimer(ITIMER_REAL, &often, NULL);
	long calls = 0, parent = getppid();
	while (handled < 2000) {
		CHECK(hooked(SYS_getppid, 0, 0, 0) == parent, "getppid");
		calls++;
		CHECK(hooked(SYS_close, -1, 0, 0) == -EBADF, "close");
	}
	setitimer(ITIMER_REAL, &never, NULL);
	CHECK(counts.row[SYS_getppid].calls == (uint64_t)(calls + 3 * handled), "%lu calls, %ld + 3 x %ld made", counts.row[SYS_getppid].calls, calls, handled);
	CHECK(counts.row[SYS_close].calls == (uint64_t)calls && counts.row[SYS_close].errors == (uint64_t)calls, "close");
	/* left by longjmp, again and again */
	volatile long in = 0;
	handled = 0;
	setitimer(ITIMER_REAL, &often, NULL);
	while (handled < 2000) {
		if (sigsetjmp(out, 1) == 0)
			for (;;) {
				jump = true; /* not before: a first signal would go to where nobody has set out */
				hooked(SYS_getppid, 0, 0, 0);
				in++;
			}
	}
	setitimer(ITIMER_REAL, &never, NULL);
	jump = false;
	printf("ok storm\n");
}

static int pipes[2];
static pthread_t main_thread;

static void *waker(void *arg)
{
	(void)arg;
	char path[64], state[256];
	/* until it waits in read, each time anew: /proc says so */
	snprintf(path, sizeof path, "/proc/self/task/%d/syscall", getpid());
	for (int i = 0; i < 4; i++) {
		long before = handled;
		for (;;) {
			int fd = open(path, O_RDONLY);
			ssize_t n = read(fd, state, sizeof state - 1);
			close(fd);
			if (n > 0 && strncmp(state, "0 ", 2) == 0)
				break;
			sched_yield();
		}
		pthread_kill(main_thread, SIGALRM);
		while (handled == before)
			sched_yield();
	}
	if (write(pipes[1], "x", 1) != 1)
		exit(1);
	return NULL;
}

static void restarts(void)
{
	CHECK(pipe(pipes) == 0, "pipe");
	all(RS_CALL_COUNT);
	memset(&counts, 0, sizeof counts);
	rs_calls_tls = &counts;
	main_thread = pthread_self();
	for (int restart = 1; restart >= 0; restart--) {
		struct sigaction sa = {.sa_handler = alarmed, .sa_flags = restart ? SA_RESTART : 0};
		sigaction(SIGALRM, &sa, NULL);
		pthread_t t;
		char c;
		pthread_create(&t, NULL, waker, NULL);
		int errors = 0;
		for (;;) {
			long n = hooked(SYS_read, pipes[0], (long)&c, 1);
			if (n == 1)
				break;
			CHECK(n == -EINTR, "read: %ld", n);
			errors++;
		}
		pthread_join(t, NULL);
		CHECK(errors == (restart ? 0 : 4), "%d EINTR", errors);
		CHECK(counts.row[SYS_read].calls == (restart ? 1 : 6) && counts.row[SYS_read].errors == (uint64_t)errors, "%lu calls %lu errors", counts.row[SYS_read].calls, counts.row[SYS_read].errors);
	}
	printf("ok restarts\n");
}

/* --- cancellation: the forced unwinding passes through the hook's frame ------------------------------------------------------------------------------------- */

static volatile int cleaned;
static void clean(void *arg) { cleaned += arg == &cleaned; }

static __attribute__((noinline)) void deeper(int n, char *buffer)
{
	int old;
	pthread_cleanup_push(clean, (void *)&cleaned);
	if (n == 0) {
		pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, &old);
		hooked(SYS_read, pipes[0], (long)buffer, 1);
		pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &old);
	} else
		deeper(n - 1, buffer);
	pthread_cleanup_pop(0);
}

static volatile pid_t victim;
static void *cancelled(void *arg)
{
	char c[8];
	(void)arg;
	rs_calls_tls = NULL;
	victim = gettid();
	deeper(5, c);
	return NULL;
}

static void cancellation(void)
{
	for (int class = RS_CALL_COUNT; class <= RS_CALL_SEE; class += RS_CALL_SEE - RS_CALL_COUNT)
		for (int i = 0; i < 20; i++) {
			pthread_t t;
			void *value;
			char path[64], state[256];
			all((uint8_t)class);
			cleaned = victim = 0;
			pthread_create(&t, NULL, cancelled, NULL);
			while (!victim)
				sched_yield();
			snprintf(path, sizeof path, "/proc/self/task/%d/syscall", victim);
			do {
				int fd = open(path, O_RDONLY);
				ssize_t n = read(fd, state, sizeof state - 1);
				state[n > 0 ? n : 0] = 0;
				close(fd);
				sched_yield();
			} while (strncmp(state, "0 ", 2) != 0);
			pthread_cancel(t);
			pthread_join(t, &value);
			CHECK(value == PTHREAD_CANCELED && cleaned == 6, "%d handlers ran, value %p", cleaned, value);
		}
	printf("ok cancellation\n");
}

/* --- clone and the like, made by the trampoline ------------------------------------------------------------------------------------------------------------------ */

static void children(void)
{
	all(RS_CALL_COUNT);
	rs_call_class[SYS_clone] = rs_call_class[SYS_vfork] = rs_call_class[SYS_fork] = RS_CALL_COUNT_PASS;
	rs_call_class[SYS_exit_group] = RS_CALL_PASS;
	memset(&rs_calls_pending, 0, sizeof rs_calls_pending);
	fflush(stdout);
	for (int i = 0; i < 50; i++) {
		long pid = i % 2 ? hooked(SYS_fork, 0, 0, 0) : hooked(SYS_clone, SIGCHLD, 0, 0);
		if (pid == 0) {
			hooked(SYS_exit_group, 7, 0, 0);
			abort();
		}
		int status;
		CHECK(waitpid((pid_t)pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7, "child");
	}
	CHECK(rs_calls_pending.row[SYS_fork].calls + rs_calls_pending.row[SYS_clone].calls == 50, "%lu", rs_calls_pending.row[SYS_fork].calls);
	printf("ok children\n");
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	registers();
	counting();
	views();
	storm();
	restarts();
	cancellation();
	children();
	return 0;
}
