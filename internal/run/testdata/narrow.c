// Handlers on an alternate stack of the program's own, as the program sees them: "narrow KIND BYTES": so many more than AT_MINSIGSTKSZ. Memory below each stack has a pattern. Prints how many handlers there were, and 0 or the bits of what is not as the kernel has it.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <xmmintrin.h>

#ifndef SS_AUTODISARM
#define SS_AUTODISARM (1u << 31)
#endif
enum { BELOW = 32 << 10, TIMES = 300 };
static volatile int handled, wrong, sink;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static size_t size;
static __thread char *mine;
static __thread sigjmp_buf out;

static void is(int bit, int so) { __atomic_fetch_or(&wrong, so ? 0 : 1 << bit, __ATOMIC_RELAXED); }
static int on_it(const void *p) { return (size_t)((const char *)p - mine) < size; }
static void one_more(void) { __atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED); }

static void set_stack(int flags)
{
	char *p = mmap(NULL, 2 * BELOW, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memset(p, 0x5a, 2 * BELOW);
	mine = p + BELOW;
	stack_t s = {.ss_sp = mine, .ss_size = size, .ss_flags = flags};
	is(0, sigaltstack(&s, NULL) == 0);
}

static void look_below(void)
{
	for (int i = 1; i <= BELOW; i++)
		if (mine[-i] != 0x5a) {
			is(1, 0);
			return;
		}
}

static void plain(int sig, siginfo_t *info, void *context)
{
	const ucontext_t *uc = context;
	is(3, on_it(&uc) && on_it(uc) && info->si_signo == sig);
	is(4, uc->uc_stack.ss_sp == mine && uc->uc_stack.ss_size == size && !(uc->uc_stack.ss_flags & SS_DISABLE) && !uc->uc_link && uc->uc_mcontext.fpregs);
	one_more();
}

static volatile int depth;
static void again(int sig, siginfo_t *info, void *context)
{
	plain(sig, info, context);
	if (++depth < 2)
		raise(sig);
	depth--;
}

static void other(int sig, siginfo_t *info, void *context)
{
	plain(sig, info, context);
	raise(SIGUSR2);
}

extern void __longjmp_chk(struct __jmp_buf_tag to[1], int value) __attribute__((noreturn)); // which asks whether the thread is on its alternate stack
static int checked;

static void jumps(int sig, siginfo_t *info, void *context)
{
	plain(sig, info, context);
	if (checked)
		__longjmp_chk(out, 1);
	siglongjmp(out, 1);
}

static void asks(int sig, siginfo_t *info, void *context)
{
	stack_t s, none = {.ss_flags = SS_DISABLE};
	plain(sig, info, context);
	is(5, sigaltstack(NULL, &s) == 0 && s.ss_flags == SS_ONSTACK && s.ss_sp == mine && s.ss_size == size);
	is(6, sigaltstack(&none, NULL) == -1 && errno == EPERM);
	is(7, sigaltstack(&none, (void *)8) == -1 && (errno == EFAULT || errno == EPERM));
	is(8, sigaltstack((void *)8, NULL) == -1 && errno == EFAULT);
}

static void disarmed(int sig, siginfo_t *info, void *context)
{
	const ucontext_t *uc = context;
	stack_t s;
	is(3, on_it(&uc) && on_it(uc) && info->si_signo == sig);
	is(4, uc->uc_stack.ss_sp == mine && uc->uc_stack.ss_size == size && (unsigned)uc->uc_stack.ss_flags == SS_AUTODISARM);
	is(5, sigaltstack(NULL, &s) == 0 && s.ss_flags == SS_DISABLE && !s.ss_sp && !s.ss_size);
	one_more();
}

// What the context says of the stack counts when the handler returns. (From that stack it does up to Linux 6.11 alone.)
static void changes(int sig, siginfo_t *info, void *context)
{
	stack_t *s = &((ucontext_t *)context)->uc_stack;
	is(3, !on_it(&sig) && !on_it(context) && info->si_signo == sig);
	is(4, s->ss_sp == mine && s->ss_size == size && !(s->ss_flags & SS_DISABLE));
	one_more();
	*s = (stack_t){.ss_flags = SS_DISABLE};
}

static void handle(int sig, void (*f)(int, siginfo_t *, void *), int flags)
{
	struct sigaction a = {.sa_sigaction = f, .sa_flags = SA_SIGINFO | (f == changes ? 0 : SA_ONSTACK) | flags};
	is(2, sigaction(sig, &a, NULL) == 0);
}

static void computes(int sig, siginfo_t *info, void *context)
{
	__m128 other = _mm_set1_ps(7);
	plain(sig, info, context);
	__asm__ volatile("movaps %0, %%xmm9\n\tmovaps %0, %%xmm15" : : "x"(other) : "xmm9", "xmm15");
}

static int (*volatile deeper)(int n);
static int deep(int n)
{
	volatile char page[4096];
	page[0] = (char)n;
	return deeper(n + 1) + page[0];
}

static void overflows(int sig, siginfo_t *info, void *context)
{
	is(3, on_it(&sig) && on_it(context) && info->si_signo == sig && info->si_code > 0);
	is(9, labs((char *)info->si_addr - (char *)((ucontext_t *)context)->uc_mcontext.gregs[15]) < 1 << 16);
	one_more();
	siglongjmp(out, 1);
}

// Whatever a thread does with its own small stack: waits, locks, its signals.
static void *thread(void *arg)
{
	set_stack(0);
	for (int i = 0; i < TIMES / 2; i++) {
		pthread_mutex_lock(&lock);
		sink++;
		pthread_mutex_unlock(&lock);
		if (arg)
			raise(i % 2 ? SIGUSR1 : SIGUSR2);
		usleep(100);
	}
	look_below();
	return arg;
}

static void locks(int sig, siginfo_t *info, void *context)
{
	plain(sig, info, context);
	pthread_mutex_lock(&lock);
	sink++;
	pthread_mutex_unlock(&lock);
}

static void settings(void)
{
	stack_t s = {.ss_sp = mine, .ss_size = 100}, old;
	memset(&old, 1, sizeof old);
	is(10, sigaltstack(&s, &old) == -1 && errno == ENOMEM && old.ss_flags == 0x1010101);
	s.ss_size = 2047;
	is(11, sigaltstack(&s, NULL) == -1 && errno == ENOMEM);
	s.ss_size = size, s.ss_flags = 5;
	is(12, sigaltstack(&s, NULL) == -1 && errno == EINVAL);
	is(13, sigaltstack((void *)8, NULL) == -1 && errno == EFAULT);
	s.ss_flags = SS_ONSTACK;
	is(14, sigaltstack(&s, &old) == 0 && old.ss_sp == mine && old.ss_size == size && old.ss_flags == 0);
	s.ss_flags = SS_DISABLE;
	is(15, sigaltstack(&s, (void *)8) == -1 && errno == EFAULT); // and yet it is set
	is(16, sigaltstack(NULL, &old) == 0 && old.ss_flags == SS_DISABLE && !old.ss_sp && !old.ss_size);
	s.ss_flags = (int)SS_AUTODISARM;
	is(17, sigaltstack(&s, NULL) == 0 && sigaltstack(NULL, &old) == 0 && (unsigned)old.ss_flags == SS_AUTODISARM);
	// Where the thread is just now.
	s.ss_sp = (char *)&s - size / 2, s.ss_flags = 0;
	is(18, sigaltstack(&s, NULL) == 0 && sigaltstack(NULL, &old) == 0 && old.ss_flags == SS_ONSTACK);
	s.ss_sp = mine;
	is(19, sigaltstack(&s, NULL) == -1 && errno == EPERM);
}

static void in_child(void)
{
	int status;
	pid_t child = fork();
	if (child == 0) {
		stack_t s;
		is(20, sigaltstack(NULL, &s) == 0 && s.ss_sp == mine && s.ss_size == size && !s.ss_flags);
		raise(SIGUSR1);
		fprintf(stderr, wrong ? "a child: %x\n" : "", wrong);
		_exit(!!wrong);
	}
	is(21, waitpid(child, &status, 0) == child && status == 0);
}

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "plain";
	int calls = !strcmp(kind, "settings"), often = !strcmp(kind, "often"), times = often ? 200 * TIMES : calls || !strcmp(kind, "overflow") ? 60 : TIMES;
	void (*f)(int, siginfo_t *, void *) = !strcmp(kind, "nested") ? other : !strcmp(kind, "again") ? again : !strcmp(kind, "jump") || !strcmp(kind, "loose") || !strcmp(kind, "checked") ? jumps : !strcmp(kind, "asks") ? asks : !strcmp(kind, "disarm") ? disarmed :
		!strcmp(kind, "changes") ? changes : !strcmp(kind, "computes") ? computes : !strcmp(kind, "overflow") ? overflows : !strcmp(kind, "locks") ? locks : plain;
	pthread_t t[3];
	size = getauxval(AT_MINSIGSTKSZ) + (argc > 2 ? (size_t)atoi(argv[2]) : 0);
	if (!strcmp(kind, "dies"))
		size = 2048;
	deeper = deep;
	checked = !strcmp(kind, "checked");
	// Functions are bound here.
	for (volatile int i = 0; i < 2; i++)
		if (!sigsetjmp(out, 1))
			i ? siglongjmp(out, 1) : __longjmp_chk(out, 1);
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
	errno = 0;
	set_stack(f == disarmed ? (int)SS_AUTODISARM : 0);
	handle(SIGUSR1, f, f == again ? SA_NODEFER : !strcmp(kind, "restart") ? SA_RESTART : 0);
	handle(SIGUSR2, plain, 0);
	handle(SIGPROF, plain, SA_RESTART);
	if (f == overflows)
		handle(SIGSEGV, f, 0);
	for (long i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, thread, !strcmp(kind, "threads") ? (void *)1 : NULL);
	for (int i = 0; i < times; i++) {
		if (calls) {
			settings();
			break; // it is where the thread is, so there is no other any more
		}
		if (f == overflows) {
			if (!sigsetjmp(out, 1))
				sink = deep(0);
		} else if (f == computes) {
			__m128 was = _mm_set1_ps(3), now;
			pid_t pid = getpid();
			long r;
			__asm__ volatile("movaps %2, %%xmm9\n\tmovaps %2, %%xmm15\n\tsyscall\n\tmovaps %%xmm9, %1\n\taddps %%xmm15, %1" : "=a"(r), "=&x"(now) : "x"(was), "0"((long)SYS_tgkill), "D"((long)pid), "S"((long)gettid()), "d"((long)SIGUSR1) : "rcx", "r11", "xmm9", "xmm15", "memory");
			is(25, r == 0 && _mm_cvtss_f32(now) == 6);
		} else if (f == jumps) {
			sigset_t one;
			sigemptyset(&one);
			sigaddset(&one, SIGUSR1);
			if (!sigsetjmp(out, strcmp(kind, "loose") != 0))
				raise(SIGUSR1);
			sigprocmask(SIG_UNBLOCK, &one, NULL);
		} else if (i % 2)
			pthread_kill(pthread_self(), SIGUSR1);
		else
			raise(SIGUSR1);
		is(26, f != plain || handled == i + 1 || !strcmp(kind, "threads"));
		if (f == changes) {
			stack_t s;
			is(23, sigaltstack(NULL, &s) == 0 && s.ss_flags == SS_DISABLE);
			s = (stack_t){.ss_sp = mine, .ss_size = size};
			is(24, sigaltstack(&s, NULL) == 0);
		}
		if (!often)
			usleep(200);
	}
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	if (!strcmp(kind, "child"))
		in_child();
	look_below();
	printf("%d %x\n", handled, wrong);
	return 0;
}
