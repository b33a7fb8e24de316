/* trap.c: what a program does with SIGTRAP, in code that is patched all over, with int3 among it. trap WHAT. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static volatile sig_atomic_t count, code, blocked_inside;
static uintptr_t where;
extern char after_int3[];
__asm__(".text\n.globl hit\n.type hit, @function\nhit:\n	nop\n	push %rbx\n	int3\nafter_int3:\n	pop %rbx\n	ret\n.size hit, .-hit\n");
void hit(void);

static int is_blocked(int sig)
{
	sigset_t now;
	pthread_sigmask(SIG_BLOCK, NULL, &now);
	return sigismember(&now, sig);
}

static void on_trap(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	count++;
	code = info->si_code;
	where = (uintptr_t)uc->uc_mcontext.gregs[REG_RIP];
	blocked_inside = is_blocked(sig) * 2 + sigismember(&uc->uc_sigmask, SIGTRAP);
}

static void install(int flags, int block)
{
	struct sigaction sa = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO | flags}, old;
	if (block)
		sigfillset(&sa.sa_mask);
	sigaction(SIGTRAP, &sa, NULL);
	sigaction(SIGTRAP, NULL, &old);
	printf("action %d flags %x trap in mask %d usr1 in mask %d\n", old.sa_sigaction == on_trap, old.sa_flags & ~0x04000000, sigismember(&old.sa_mask, SIGTRAP),
	       sigismember(&old.sa_mask, SIGUSR1));
}

static void say(const char *what)
{
	printf("%s: count %d code %d at int3 %d blocked inside %d now %d\n", what, count, code, where == (uintptr_t)after_int3, blocked_inside, is_blocked(SIGTRAP));
	fflush(stdout);
}

static sigjmp_buf out;
static void jump(int sig) { siglongjmp(out, sig); }

static long busy(void)
{
	volatile long a[64] = {0};
	for (int i = 0; i < 20000; i++)
		a[i & 63] += a[(i * 7) & 63] + i;
	return a[9];
}

static void *blocked_thread(void *arg)
{
	sigset_t all;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, NULL);
	*(long *)arg = busy() + is_blocked(SIGTRAP);
	return NULL;
}

static volatile sig_atomic_t usr1;
static void on_usr1(int sig)
{
	(void)sig;
	usr1 += busy() != 0;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "handler";
	struct rlimit none = {0, 0};
	setrlimit(RLIMIT_CORE, &none);
	printf("at first blocked %d\n", is_blocked(SIGTRAP));
	if (!strcmp(what, "handler")) {
		install(0, 0);
		raise(SIGTRAP);
		say("raise");
		hit();
		say("int3");
		install(SA_NODEFER, 0);
		hit();
		say("nodefer");
		install(0, 1);
		hit();
		say("masked");
		sigset_t s, old;
		sigemptyset(&s);
		sigaddset(&s, SIGTRAP);
		sigaddset(&s, SIGUSR2);
		sigprocmask(SIG_BLOCK, &s, &old);
		printf("old %d\n", sigismember(&old, SIGTRAP));
		raise(SIGTRAP);
		say("pending");
		busy();
		sigprocmask(SIG_UNBLOCK, &s, &old);
		printf("old %d\n", sigismember(&old, SIGTRAP));
		say("unblocked");
		install((int)SA_RESETHAND, 0);
		hit();
		say("reset");
		struct sigaction now;
		sigaction(SIGTRAP, NULL, &now);
		printf("default %d\n", now.sa_handler == SIG_DFL);
		signal(SIGTRAP, SIG_IGN);
		raise(SIGTRAP);
		printf("ignored %d\n", signal(SIGTRAP, jump) == SIG_IGN);
		for (int i = 0; i < 3; i++) {
			int sig = sigsetjmp(out, 1);
			if (!sig)
				hit();
			printf("left by %d, blocked %d\n", sig, is_blocked(SIGTRAP));
		}
		for (int i = 0; i < 3; i++) {
			int sig = sigsetjmp(out, 1);
			if (!sig)
				raise(SIGTRAP);
			printf("left by %d\n", sig);
		}
	} else if (!strcmp(what, "blocked")) {
		sigset_t all, old;
		sigfillset(&all);
		struct sigaction sa = {.sa_handler = on_usr1};
		sigfillset(&sa.sa_mask);
		sigaction(SIGUSR1, &sa, NULL);
		sigaction(SIGUSR1, NULL, &sa);
		printf("in mask %d\n", sigismember(&sa.sa_mask, SIGTRAP));
		raise(SIGUSR1);
		printf("usr1 %d\n", usr1);
		pthread_sigmask(SIG_SETMASK, &all, &old);
		printf("%ld\n", busy());
		pthread_sigmask(SIG_SETMASK, NULL, &all);
		printf("blocked %d %d\n", sigismember(&all, SIGTRAP), sigismember(&old, SIGTRAP));
		pthread_t t;
		long r = 0;
		pthread_create(&t, NULL, blocked_thread, &r);
		pthread_join(t, NULL);
		printf("thread %ld\n", r);
		sigset_t wait = all;
		sigdelset(&wait, SIGUSR1);
		raise(SIGUSR1);
		sigsuspend(&wait);
		printf("usr1 %d\n", usr1);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
		if (fork() == 0) {
			signal(SIGTRAP, SIG_DFL);
			pthread_sigmask(SIG_SETMASK, &all, NULL);
			busy();
			_exit(3);
		}
		int status;
		wait4(-1, &status, 0, NULL);
		printf("child %x\n", status);
	} else if (!strcmp(what, "int3")) {
		hit();
	} else if (!strcmp(what, "raise")) {
		raise(SIGTRAP);
	} else if (!strcmp(what, "ignored")) {
		signal(SIGTRAP, SIG_IGN);
		raise(SIGTRAP);
		printf("still here\n");
		fflush(stdout);
		hit();
	} else if (!strcmp(what, "mask")) {
		sigset_t s;
		sigemptyset(&s);
		sigaddset(&s, SIGTRAP);
		install(0, 0);
		sigprocmask(SIG_BLOCK, &s, NULL);
		fflush(stdout);
		hit();
	}
	printf("end\n");
	return 0;
}
