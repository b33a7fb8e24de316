/* sigraw.c: what a program does with SIGTRAP and handlers past the functions that it usually calls, in code that is patched all over, with int3 among it. sigraw WHAT. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

struct kernel_action { void (*handler)(int, siginfo_t *, void *); unsigned long flags; void (*restorer)(void); unsigned long mask; };
enum { TRAP = 1 << (SIGTRAP - 1), RESTORER = 0x04000000 };

/* By an instruction of our own, or by libc's function. The vector registers stay as they are. */
static int own;
extern char text_end[] __asm__("etext"), text_begin[] __asm__("__executable_start");
static long call(long n, long a, long b, long c, long d)
{
	if (!own) {
		long r = syscall(n, a, b, c, d);
		return r < 0 ? -errno : r;
	}
	long r;
	uint64_t kept = 0;
	register long r10 __asm__("r10") = d;
	__asm__ volatile("movq %6, %%xmm7\n	syscall\n	movq %%xmm7, %1"
		: "=a"(r), "=r"(kept) : "0"(n), "D"(a), "S"(b), "d"(c), "r"(0x1234567890abcdefull), "r"(r10) : "rcx", "r11", "xmm7", "memory");
	if (kept != 0x1234567890abcdefull)
		printf("xmm7 is %lx\n", (unsigned long)kept);
	return r;
}

__asm__(".text\nrestore:\n	mov $15, %eax\n	syscall\n");
void restore(void);

static long busy(void)
{
	volatile unsigned long a[64] = {0};
	for (int i = 0; i < 20000; i++)
		a[i & 63] += a[(i * 7) & 63] + (unsigned)i;
	return (long)a[9];
}

static unsigned long mask(void)
{
	unsigned long m = 0;
	long r = call(SYS_rt_sigprocmask, SIG_BLOCK, 0, (long)&m, 8);
	return r ? (unsigned long)r : m;
}

static volatile sig_atomic_t count, blocked_inside, strange;
static void on(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	uintptr_t pc = (uintptr_t)uc->uc_mcontext.gregs[REG_RIP];
	(void)info;
	count++;
	blocked_inside = !!(mask() & TRAP);
	if (sig == SIGALRM && (pc < (uintptr_t)text_begin || pc >= (uintptr_t)text_end) && !(pc >> 40 & 0x7f))
		strange++;
	busy();
}

static void *thread(void *arg)
{
	(void)arg;
	printf("thread: %ld, blocked %d\n", busy(), !!(mask() & TRAP));
	return NULL;
}

static void threads(const pthread_attr_t *attr)
{
	pthread_t t;
	pthread_create(&t, attr, thread, NULL);
	pthread_join(t, NULL);
}

static sigjmp_buf out;
static void jump(int sig) { siglongjmp(out, sig); }

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "calls";
	struct rlimit none = {0, 0};
	setrlimit(RLIMIT_CORE, &none);
	own = argc > 2;
	if (!strcmp(what, "exec")) {
		struct sigaction sa;
		sigaction(SIGTRAP, NULL, &sa);
		printf("blocked %d ignored %d, %ld\n", !!(mask() & TRAP), sa.sa_handler == SIG_IGN, busy());
		return 0;
	}
	if (!strcmp(what, "masks")) {
		unsigned long all = ~0ul, old = 1;
		long r = call(SYS_rt_sigprocmask, SIG_BLOCK, (long)&all, (long)&old, 8);
		printf("%ld, was %d\n", r, !!(old & TRAP));
		printf("%ld, blocked %d\n", busy(), !!(mask() & TRAP));
		printf("%ld ", call(SYS_rt_sigprocmask, 77, (long)&all, 0, 8));
		printf("%ld ", call(SYS_rt_sigprocmask, SIG_BLOCK, 16, 0, 8));
		printf("%ld ", call(SYS_rt_sigprocmask, SIG_BLOCK, (long)&all, 16, 8));
		printf("%ld\n", call(SYS_rt_sigprocmask, SIG_BLOCK, (long)&all, 0, 4));
		threads(NULL);
		unsigned long trap = TRAP;
		r = call(SYS_rt_sigprocmask, SIG_UNBLOCK, (long)&trap, (long)&old, 8);
		printf("%ld, was %d, now %d\n", r, !!(old & TRAP), !!(mask() & TRAP));
		r = call(SYS_rt_sigprocmask, SIG_SETMASK, (long)&trap, (long)&trap, 8);
		printf("%ld, old over new %lx, now %d\n", r, trap & 0xff, !!(mask() & TRAP));
		threads(NULL);
	} else if (!strcmp(what, "actions")) {
		struct kernel_action a = {on, SA_SIGINFO | RESTORER, restore, ~0ul}, b;
		printf("%ld ", call(SYS_rt_sigaction, SIGUSR1, (long)&a, 0, 8));
		memset(&b, 1, sizeof b);
		printf("%ld ", call(SYS_rt_sigaction, SIGUSR1, 0, (long)&b, 8));
		printf("%d %lx %d %d\n", b.handler == on, b.flags, b.restorer == restore, !!(b.mask & TRAP));
		raise(SIGUSR1);
		printf("count %d, blocked inside %d, now %d\n", count, blocked_inside, !!(mask() & TRAP));
		struct sigaction sa;
		sigaction(SIGUSR1, NULL, &sa);
		printf("libc's %d %d\n", sa.sa_sigaction == on, sigismember(&sa.sa_mask, SIGTRAP));
		a.mask = 0;
		printf("%ld ", call(SYS_rt_sigaction, SIGTRAP, (long)&a, (long)&b, 8));
		printf("default %d\n", b.handler == NULL);
		raise(SIGTRAP);
		printf("count %d, blocked inside %d, %ld\n", count, blocked_inside, busy());
		sigaction(SIGTRAP, NULL, &sa);
		printf("libc's %d %x\n", sa.sa_sigaction == on, sa.sa_flags & ~RESTORER);
		printf("%ld %ld %ld %ld\n", call(SYS_rt_sigaction, SIGTRAP, 16, 0, 8), call(SYS_rt_sigaction, SIGUSR1, 0, 16, 8), call(SYS_rt_sigaction, 99, (long)&a, 0, 8),
		       call(SYS_rt_sigaction, SIGKILL, (long)&a, 0, 8));
		a.flags = RESTORER | SA_RESTART;
		call(SYS_rt_sigaction, SIGALRM, (long)&a, 0, 8);
		count = 0;
		while (count < 20) {
			int before = count; // before the alarm is set: it may come at once
			ualarm(500, 0);
			while (count == before)
				busy();
		}
		printf("strange %d\n", strange);
		a.handler = (void *)1;
		call(SYS_rt_sigaction, SIGTRAP, (long)&a, (long)&b, 8);
		printf("was %d\n", b.handler == on);
		raise(SIGTRAP);
		printf("%ld\n", busy());
	} else if (!strcmp(what, "attributes")) {
		pthread_attr_t attr;
		sigset_t set;
		sigfillset(&set);
		pthread_attr_init(&attr);
		pthread_attr_setsigmask_np(&attr, &set);
		threads(&attr);
		pthread_sigmask(SIG_BLOCK, &set, NULL);
		threads(NULL);
		sigemptyset(&set);
		pthread_attr_setsigmask_np(&attr, &set);
		threads(&attr);
	} else if (!strcmp(what, "handler")) {
		struct sigaction sa = {.sa_sigaction = on, .sa_flags = SA_SIGINFO};
		sigfillset(&sa.sa_mask);
		sigaction(SIGUSR1, &sa, NULL);
		raise(SIGUSR1);
		printf("count %d, blocked inside %d, now %d\n", count, blocked_inside, !!(mask() & TRAP));
		sa.sa_handler = jump;
		sa.sa_flags = 0;
		sigaction(SIGUSR1, &sa, NULL);
		if (sigsetjmp(out, 1) == 0)
			raise(SIGUSR1);
		printf("left, blocked %d\n", !!(mask() & TRAP));
		signal(SIGTRAP, jump);
		int r = sigsetjmp(out, 1);
		if (r == 0)
			raise(SIGTRAP);
		printf("left by %d, blocked %d\n", r, !!(mask() & TRAP));
	} else if (!strcmp(what, "vfork")) {
		sigset_t all;
		sigfillset(&all);
		struct sigaction sa = {.sa_sigaction = on, .sa_flags = SA_SIGINFO, .sa_mask = all}, now;
		sigaction(SIGTRAP, &sa, NULL);
		sigaction(SIGUSR1, &sa, NULL);
		for (int i = 0; i < 3; i++) {
			fflush(stdout);
			pid_t pid = vfork();
			if (pid == 0) {
				busy();
				if (i > 0) {
					signal(SIGTRAP, SIG_DFL);
					signal(SIGUSR1, SIG_DFL);
					sigprocmask(i == 1 ? SIG_BLOCK : SIG_UNBLOCK, &all, NULL);
				}
				busy();
				if (i == 2)
					execl("/proc/self/exe", argv[0], "exec", NULL);
				_exit(busy() & 7);
			}
			int status = 0;
			waitpid(pid, &status, 0);
			sigaction(SIGUSR1, NULL, &now);
			printf("status %x, %ld, blocked %d, in mask %d\n", status, busy(), !!(mask() & TRAP), sigismember(&now.sa_mask, SIGTRAP));
			raise(SIGTRAP);
			printf("count %d\n", count);
			if (i == 1)
				sigprocmask(SIG_BLOCK, &all, NULL);
		}
	} else if (!strcmp(what, "inherit")) {
		sigset_t set;
		sigemptyset(&set);
		sigaddset(&set, SIGTRAP);
		for (int i = 0; i < 3; i++) {
			fflush(stdout);
			if (fork() == 0) {
				if (i == 1)
					signal(SIGTRAP, SIG_IGN);
				if (i == 2)
					sigprocmask(SIG_BLOCK, &set, NULL);
				busy();
				execl("/proc/self/exe", argv[0], "exec", NULL);
				_exit(1);
			}
			wait(NULL);
		}
		sigprocmask(SIG_BLOCK, &set, NULL);
		pid_t pid;
		char *args[] = {argv[0], "exec", NULL};
		fflush(stdout);
		if (posix_spawn(&pid, "/proc/self/exe", NULL, NULL, args, environ) == 0)
			wait(NULL);
		char command[4200];
		ssize_t n = readlink("/proc/self/exe", command, 4096);
		if (n > 0) {
			strcpy(command + n, " exec");
			system(command);
		}
		execl("/nowhere", argv[0], NULL);
		printf("%ld, blocked %d\n", busy(), !!(mask() & TRAP));
	}
	printf("end\n");
	return 0;
}
