/* Every way to set a signal mask. For each change a line `how mask`, as the kernel has it, in the order of the events that the agent is to send. */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
int __sigsuspend(const sigset_t *);
int __sigpause(int, int);
int bsd_pause(int) __asm__("sigpause");
int xpg_pause(int) __asm__("__xpg_sigpause");
int __ppoll_chk(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, size_t);

static uint64_t now(void)
{
	uint64_t m = 0;
	register long r10 __asm__("r10") = 8;
	long r;
	__asm__ volatile("syscall" : "=a"(r) : "a"(SYS_rt_sigprocmask), "D"(0), "S"(0), "d"(&m), "r"(r10) : "rcx", "r11", "memory");
	return m;
}

static void show(const char *how) { printf("%s %lx\n", how, now()); }
static void result(const char *name, long r) { printf("# %s: %ld errno %d\n", name, r, r ? errno : 0); }

/* In a wait: what is in force, but for the signal itself. */
static void handler(int s) { printf("wait %lx\n", now() & ~(1ul << (s - 1))); }

static void again(int s)
{
	sigset_t m;
	sigemptyset(&m);
	sigaddset(&m, SIGHUP);
	sigprocmask(SIG_BLOCK, &m, NULL);
	printf("block %lx\n", now());
	(void)s;
}

static sigset_t set(int a, int b)
{
	sigset_t m;
	sigemptyset(&m);
	if (a)
		sigaddset(&m, a);
	if (b)
		sigaddset(&m, b);
	return m;
}

static void *thread(void *p)
{
	sigset_t m = set(SIGALRM, 0);
	pthread_sigmask(SIG_BLOCK, &m, NULL);
	show("block");
	return p;
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	sigset_t m = set(SIGUSR1, SIGKILL), old, empty = set(0, 0), full, usr2 = set(SIGUSR2, 0);
	sigfillset(&full);
	signal(SIGUSR1, handler);
	printf("# old %d\n", sigprocmask(SIG_BLOCK, NULL, &old));
	result("block", sigprocmask(SIG_BLOCK, &m, &old));
	show("block");
	printf("# was blocked %d\n", sigismember(&old, SIGUSR1));
	result("pthread block", pthread_sigmask(SIG_BLOCK, &usr2, NULL));
	show("block");
	result("unblock", sigprocmask(SIG_UNBLOCK, &usr2, NULL));
	show("unblock");
	result("unblock again", pthread_sigmask(SIG_UNBLOCK, &usr2, &old));
	show("unblock");
	result("set full", sigprocmask(SIG_SETMASK, &full, &full)); /* the old one over the new */
	show("set");
	result("set old", pthread_sigmask(SIG_SETMASK, &full, NULL));
	show("set");
	m = set(32, 33);
	result("glibc's own", sigprocmask(SIG_BLOCK, &m, NULL));
	show("block");
	result("bad how", sigprocmask(99, &m, NULL));
	result("bad how, no set", sigprocmask(99, NULL, &old));
	result("bad how", pthread_sigmask(-1, &m, &old));
	result("bad old", sigprocmask(SIG_BLOCK, &empty, (sigset_t *)8));
	result("syscall", syscall(SYS_rt_sigprocmask, SIG_SETMASK, &usr2, &old, 8));
	show("set");
	result("syscall bad", syscall(SYS_rt_sigprocmask, SIG_SETMASK, (void *)8, NULL, 8));
	result("syscall back", syscall(SYS_rt_sigprocmask, SIG_SETMASK, &old, NULL, 8));
	show("set");

	result("sighold", sighold(SIGUSR2));
	show("block");
	result("sigrelse", sigrelse(SIGUSR2));
	show("unblock");
	result("sighold bad", sighold(99));
	result("sigrelse bad", sigrelse(0));
	result("sigset hold", (long)sigset(SIGTERM, SIG_HOLD));
	show("block");
	result("sigset", (long)sigset(SIGTERM, SIG_IGN));
	show("unblock");
	printf("# sigblock %x\n", sigblock(sigmask(SIGUSR2)));
	show("block");
	printf("# sigsetmask %x\n", sigsetmask(sigmask(SIGUSR1)));
	show("set");
	printf("# siggetmask %x\n", siggetmask());

	/* SIGUSR1 is blocked, and pending before each wait. */
	struct timespec zero = {0, 0}, *none = NULL;
	sigset_t but = usr2;
	int ep = epoll_create1(0);
	struct epoll_event ev;
	struct pollfd p = {.fd = -1};
	kill(getpid(), SIGUSR1);
	result("sigsuspend", sigsuspend(&but));
	show("wait-end");
	kill(getpid(), SIGUSR1);
	result("__sigsuspend", __sigsuspend(&empty));
	show("wait-end");
	kill(getpid(), SIGUSR1);
	result("sigpause", bsd_pause(sigmask(SIGTERM)));
	show("wait-end");
	kill(getpid(), SIGUSR1);
	result("xpg sigpause", xpg_pause(SIGUSR1));
	show("wait-end");
	kill(getpid(), SIGUSR1);
	result("__sigpause", __sigpause(SIGUSR1, 1));
	show("wait-end");
	kill(getpid(), SIGUSR1);
	result("ppoll", ppoll(&p, 1, none, &but));
	show("wait-end");
	kill(getpid(), SIGUSR1);
	result("__ppoll_chk", __ppoll_chk(&p, 1, none, &but, sizeof p));
	show("wait-end");
	kill(getpid(), SIGUSR1);
	result("pselect", pselect(0, NULL, NULL, NULL, none, &but));
	show("wait-end");
	kill(getpid(), SIGUSR1);
	result("epoll_pwait", epoll_pwait(ep, &ev, 1, -1, &but));
	show("wait-end");
	kill(getpid(), SIGUSR1);
	result("epoll_pwait2", epoll_pwait2(ep, &ev, 1, none, &but));
	show("wait-end");
	result("ppoll without", ppoll(&p, 1, &zero, NULL));
	result("pselect without", pselect(0, NULL, NULL, NULL, &zero, NULL));
	result("sigpause bad", xpg_pause(99));
	sigset_t *bad = (sigset_t *)8;
	result("sigsuspend bad", sigsuspend(bad));
	result("ppoll bad", ppoll(&p, 1, &zero, bad));
	result("pselect bad", pselect(0, NULL, NULL, NULL, &zero, bad));
	result("epoll_pwait bad", epoll_pwait(ep, &ev, 1, 0, bad));

	/* A handler that changes its own mask, which the return from it takes back. */
	signal(SIGUSR2, again);
	raise(SIGUSR2);
	sigjmp_buf jb;
	if (sigsetjmp(jb, 1) == 0) {
		sigprocmask(SIG_SETMASK, &empty, NULL);
		show("set");
		siglongjmp(jb, 1);
	}
	sigprocmask(SIG_BLOCK, &empty, NULL);
	show("block"); /* what siglongjmp restored */

	pthread_t t;
	pthread_create(&t, NULL, thread, NULL);
	pthread_join(t, NULL);
	pid_t pid = vfork();
	if (pid == 0) {
		sigprocmask(SIG_SETMASK, &empty, NULL);
		_exit(now() != 0);
	}
	int status;
	waitpid(pid, &status, 0);
	printf("# vfork child %x\n", status);
	if ((pid = fork()) == 0) {
		sigprocmask(SIG_UNBLOCK, &m, NULL);
		show("unblock");
		_exit(0);
	}
	waitpid(pid, &status, 0);
	printf("# system %x\n", system("true"));
	printf("# left %lx\n", now());
	return 0;
}
