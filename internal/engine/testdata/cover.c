/* Code that is run for the first time in odd places: cover.c KIND. Each prints what it computed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define FIRST __attribute__((noinline, noclone, aligned(64)))

static volatile long heap[64];

/* Each in a region of its own, whatever lies around it. */
#define FAR __asm__ volatile(".balign 4096\n\t.skip 4096, 0x90\n")
#define FUNCTION(n) \
	static FIRST long f##n(volatile long *p, long x) \
	{ \
		for (long i = 0; i < 8; i++) { \
			p[(x + i) & 63] += x * n + i; \
			x ^= p[(x * 7 + i) & 63]; \
		} \
		return x & 0xffffff; \
	} \
	static FIRST __attribute__((used)) void gap##n(void) { FAR; }
FUNCTION(1) FUNCTION(2) FUNCTION(3) FUNCTION(4) FUNCTION(5) FUNCTION(6) FUNCTION(7) FUNCTION(8)
static long (*const all[8])(volatile long *, long) = {f1, f2, f3, f4, f5, f6, f7, f8};

static void say(const char *what, long v)
{
	char text[64];
	int n = snprintf(text, sizeof text, "%s %ld\n", what, v);
	if (write(1, text, (size_t)n) != n)
		_exit(9);
}

static long waited(pid_t pid)
{
	int status = -1;
	if (waitpid(pid, &status, __WALL) != pid)
		return -1;
	return status;
}

/* --- processes -------------------------------------------------------------------------------------------------------------- */

static void forks(void)
{
	for (int i = 0; i < 3; i++) {
		pid_t pid = fork();
		if (pid == 0)
			_exit((int)(all[i](heap, i) + all[i + 1](heap, 5)) & 127);
		say("fork", waited(pid));
	}
	pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (pid == 0) {
		long r = all[4](heap, 3);
		syscall(SYS_exit_group, r & 127);
	}
	say("clone", waited(pid));
	say("parent", all[4](heap, 3) + all[0](heap, 1));
}

static void vforks(void)
{
	for (int i = 0; i < 4; i++) {
		pid_t pid = vfork();
		if (pid == 0)
			_exit((int)all[i](heap, i) & 127);
		say("vfork", waited(pid));
		say("parent", all[i](heap, i));
	}
}

static int in_clone(void *p)
{
	long i = (long)p;
	return (int)(all[i](heap, i)) & 127;
}

static void clones(void)
{
	static char stack[2][64 << 10] __attribute__((aligned(64)));
	pid_t pid = clone(in_clone, stack[0] + sizeof stack[0], CLONE_VM | SIGCHLD, (void *)1);
	say("clone", waited(pid));
	pid = clone(in_clone, stack[1] + sizeof stack[1], SIGCHLD, (void *)2);
	say("clone", waited(pid));
	say("parent", all[1](heap, 1) + all[2](heap, 2));
}

/* --- threads ---------------------------------------------------------------------------------------------------------------- */

static pthread_barrier_t gate;

static void *rush(void *p)
{
	long mine[64] = {0}, sum = 0;
	for (int i = 0; i < 8; i++) {
		pthread_barrier_wait(&gate);
		sum += all[i](mine, (long)p);
	}
	return (void *)sum;
}

static void threads(void)
{
	enum { N = 6 };
	pthread_t t[N];
	long sum = 0;
	pthread_barrier_init(&gate, NULL, N);
	for (long i = 0; i < N; i++)
		pthread_create(&t[i], NULL, rush, (void *)i);
	for (int i = 0; i < N; i++) {
		void *r;
		pthread_join(t[i], &r);
		sum += (long)r;
	}
	say("threads", sum);
}

/* Of the smallest stack that there is, nearly all that a thread may use of it is used. */
static void *narrow(void *p)
{
	(void)p;
	char room[6 << 10];
	memset(room, 1, sizeof room);
	__asm__ volatile("" ::"r"(room) : "memory");
	return (void *)(all[5](heap, 2) + room[17]);
}

static void narrows(void)
{
	pthread_attr_t a;
	pthread_t t;
	void *r;
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, (size_t)sysconf(_SC_THREAD_STACK_MIN));
	pthread_create(&t, &a, narrow, NULL);
	pthread_join(t, &r);
	say("narrow", (long)r);
}

/* On a stack that has room for what is natively on it, and for little more. */
static ucontext_t back, there;
static long on_context;
static FIRST void context(int a, int b, int c, int d, int e, int f, int g)
{
	char room[4 << 10];
	memset(room, 1, sizeof room);
	__asm__ volatile("" ::"r"(room) : "memory");
	on_context = all[4](heap, a + b + c) + all[2](heap, d + e + f + g) + room[9];
}

static void contexts(void)
{
	enum { STACK = 7 << 10 };
	char *p = mmap(NULL, STACK + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(p, 4096, PROT_NONE);
	getcontext(&there);
	there.uc_stack.ss_sp = p + 4096;
	there.uc_stack.ss_size = STACK;
	there.uc_link = &back;
	makecontext(&there, (void (*)(void))context, 7, 1, 2, 3, 4, 5, 6, 7);
	swapcontext(&back, &there);
	say("context", on_context);
}

/* --- signals ---------------------------------------------------------------------------------------------------------------- */

static long in_handler;

static void handler(int sig)
{
	in_handler = all[sig == SIGUSR1](heap, sig);
}

static void handlers(void)
{
	static char stack[64 << 10];
	size_t least = getauxval(AT_MINSIGSTKSZ) + 1024;
	stack_t s = {.ss_sp = stack, .ss_size = least};
	struct sigaction a = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
	memset(stack, 0x5a, sizeof stack);
	s.ss_sp = stack + 32768;
	if (sigaltstack(&s, NULL) != 0)
		say("sigaltstack", -1);
	sigfillset(&a.sa_mask);
	sigaction(SIGUSR1, &a, NULL);
	sigaction(SIGUSR2, &a, NULL);
	raise(SIGUSR1);
	say("handler", in_handler);
	raise(SIGUSR2);
	say("handler", in_handler);
	long below = 0;
	for (int i = 0; i < 32768; i++)
		below += stack[i] != 0x5a;
	say("below", below);
}

static inline __attribute__((always_inline)) long own_mask(const sigset_t *set, sigset_t *was)
{
	long r = SYS_rt_sigprocmask;
	register long size __asm__("r10") = 8;
	__asm__ volatile("syscall" : "+a"(r) : "D"(SIG_SETMASK), "S"(set), "d"(was), "r"(size) : "rcx", "r11", "memory");
	return r;
}

/* By instructions of its own, which go by the agent: what lies between them, regions on the same page, is covered all the same. */
#define LONG __asm__ volatile("jmp 1f\n\t.skip 1100, 0x90\n1:")
#define OWN __attribute__((section(".text.own"), noinline, noclone))
OWN __attribute__((aligned(4096))) static long own_first(const sigset_t *set, sigset_t *was)
{
	LONG;
	return own_mask(set, was);
}

OWN static long between(volatile long *p)
{
	LONG;
	p[10] += p[9] + 2;
	return p[10];
}

OWN static long own_last(const sigset_t *set)
{
	LONG;
	return own_mask(set, NULL);
}

static void blocked(void)
{
	sigset_t s, was;
	sigfillset(&s);
	sigemptyset(&was);
	say("mask", own_first(&s, &was));
	say("mask", between(heap) + own_last(&was));
	sigprocmask(SIG_SETMASK, &s, &was);
	say("blocked", all[2](heap, 7));
	sigprocmask(SIG_SETMASK, &was, NULL);
	say("open", all[3](heap, 7) + sigismember(&was, SIGTRAP));
}

static volatile sig_atomic_t traps;
static void *volatile trapped;

static void on_trap(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	(void)sig;
	traps += 1 + 100 * (info->si_code == SI_KERNEL);
	trapped = (void *)uc->uc_mcontext.gregs[REG_RIP];
}

/* An int3 of the program's own, and what it accesses beside it. */
static FIRST long own_int3(volatile long *p)
{
	p[1] += 3;
	__asm__ volatile("int3\n\t.globl behind_int3\nbehind_int3:" ::: "memory");
	p[2] += p[1];
	return p[2];
}
extern const char behind_int3[];

static void int3(void)
{
	struct sigaction a = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
	sigaction(SIGTRAP, &a, NULL);
	for (int i = 0; i < 3; i++)
		say("int3", own_int3(heap));
	say("traps", traps);
	say("behind", trapped == behind_int3);
	say("others", all[6](heap, 1));
}

static jmp_buf out;
static FIRST void leaves(volatile long *p, long x)
{
	p[3] = x;
	longjmp(out, (int)x);
}

static void jumps(void)
{
	for (volatile int i = 1; i < 4; i++) {
		int r = setjmp(out);
		if (r == 0)
			leaves(heap, i);
		say("longjmp", r + heap[3]);
	}
}

/* --- others ----------------------------------------------------------------------------------------------------------------- */

static void box(void)
{
	if (prctl(PR_SET_SECCOMP, 1) != 0)
		say("box", -1);
	say("box", all[7](heap, 4) + all[6](heap, 2));
	syscall(SYS_exit, 3);
}

static void load(const char *path)
{
	for (int i = 0; i < 3; i++) {
		void *h = dlopen(path, RTLD_NOW);
		if (!h) {
			say("dlopen", -1);
			return;
		}
		int (*f)(int) = (int (*)(int))dlsym(h, "plugin");
		say("plugin", f ? f(i) : -2);
		dlclose(h);
	}
}

/* Whoever patches it is killed between the two lines. */
static void gone(void)
{
	char c;
	say("ready", all[0](heap, 1));
	while (read(0, &c, 1) == 1)
		;
	long sum = 0;
	for (int i = 0; i < 8; i++)
		sum += all[i](heap, i);
	say("gone", sum);
	pid_t pid = fork();
	if (pid == 0)
		_exit((int)own_int3(heap) & 1);
	say("child", waited(pid));
}

int main(int argc, char **argv)
{
	static const struct { const char *name; void (*f)(void); } kinds[] = {{"forks", forks}, {"vforks", vforks}, {"clones", clones}, {"threads", threads}, {"narrow", narrows}, {"contexts", contexts},
		{"handlers", handlers}, {"blocked", blocked}, {"int3", int3}, {"jumps", jumps}, {"box", box}, {"gone", gone}};
	for (unsigned i = 0; argc > 1 && i < sizeof kinds / sizeof *kinds; i++)
		if (!strcmp(argv[1], kinds[i].name))
			kinds[i].f();
	if (argc > 2 && !strcmp(argv[1], "load"))
		load(argv[2]);
	say("end", heap[7]);
	return 0;
}
