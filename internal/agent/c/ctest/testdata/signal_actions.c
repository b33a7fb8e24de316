/* Actions of signals as the program sees them, and delivery to handlers: flags, masks, stacks, jumps, nesting. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
typedef void (*handler)(int);
handler bsd_signal(int, handler);
static volatile int count, depth, deepest;
static sigjmp_buf jb;

static void plain(int s) { (void)s; count++; }
static void info(int s, siginfo_t *i, void *u)
{
	(void)u;
	printf("info sig %d code %d value %d mine %d\n", s, i->si_code, i->si_value.sival_int, i->si_pid == getpid());
}
static void fault(int s, siginfo_t *i, void *u)
{
	char here;
	stack_t ss;
	sigaltstack(NULL, &ss);
	printf("fault %d at %d on altstack %d/%d\n", s, i->si_addr == (void *)0x10, &here >= (char *)ss.ss_sp && &here < (char *)ss.ss_sp + ss.ss_size, ss.ss_flags);
	(void)u;
	siglongjmp(jb, s);
}
static void fix(int s, siginfo_t *i, void *u)
{
	(void)s;
	(void)u;
	mprotect((void *)((unsigned long)i->si_addr & -4096ul), 4096, PROT_READ | PROT_WRITE);
}
static void nests(int s)
{
	depth++;
	if (depth > deepest)
		deepest = depth;
	if (depth < 5)
		raise(s);
	depth--;
}
static void shows_mask(int s)
{
	sigset_t m;
	(void)s;
	sigprocmask(SIG_BLOCK, NULL, &m);
	printf("mask USR1 %d USR2 %d TERM %d\n", sigismember(&m, SIGUSR1), sigismember(&m, SIGUSR2), sigismember(&m, SIGTERM));
}
static void changes_errno(int s) { (void)s; errno = 77; }

static const char *name(void *h)
{
	return h == (void *)SIG_DFL ? "default" : h == (void *)SIG_IGN ? "ignore" : h == (void *)SIG_ERR ? "error" : h == (void *)plain ? "plain" :
		h == (void *)info ? "info" : h == (void *)nests ? "nests" : h == (void *)fault ? "fault" : h == (void *)SIG_HOLD ? "hold" : "other";
}

static void show(int sig)
{
	struct sigaction sa;
	int r = sigaction(sig, NULL, &sa);
	if (r == 0)
		printf("%d: %s flags %x usr2 %d\n", sig, name((void *)sa.sa_handler), sa.sa_flags & ~0x4000000, sigismember(&sa.sa_mask, SIGUSR2));
	else
		printf("%d: error %d\n", sig, errno);
}

static void status(void)
{
	char line[200];
	FILE *f = fopen("/proc/self/status", "r");
	while (fgets(line, sizeof line, f))
		if (!strncmp(line, "SigCgt", 6) || !strncmp(line, "SigIgn", 6))
			printf("%s", line);
	fclose(f);
}

static void *taker(void *p)
{
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, SIGUSR1);
	int sig;
	*(int *)p = sigwait(&s, &sig) * 100 + sig;
	return NULL;
}

static void *many(void *p)
{
	struct sigaction sa = {.sa_flags = SA_RESTART}, old;
	for (int i = 0; i < 2000; i++) {
		sa.sa_handler = (long)p & 1 ? plain : nests;
		sigaction(SIGUSR2, &sa, &old);
		if (strcmp(name((void *)old.sa_handler), "plain") && strcmp(name((void *)old.sa_handler), "nests"))
			printf("odd action %p\n", (void *)old.sa_handler);
		depth = 4;
		raise(SIGUSR2);
	}
	return NULL;
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	struct sigaction sa = {.sa_handler = plain}, old;
	sigaddset(&sa.sa_mask, SIGUSR2);
	printf("%d ", sigaction(SIGUSR1, &sa, &old));
	printf("old %s\n", name((void *)old.sa_handler));
	show(SIGUSR1);
	sa = (struct sigaction){.sa_sigaction = info, .sa_flags = SA_SIGINFO | SA_RESTART | SA_ONSTACK};
	sigaction(SIGUSR1, &sa, &old);
	printf("old %s flags %x\n", name((void *)old.sa_handler), old.sa_flags & ~0x4000000);
	show(SIGUSR1);
	raise(SIGUSR1);
	kill(getpid(), SIGUSR1);
	sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 55});
	pthread_sigqueue(pthread_self(), SIGUSR1, (union sigval){.sival_int = 56});
	pthread_kill(pthread_self(), SIGUSR1);
	printf("tgkill %d kill0 %d\n", tgkill(getpid(), getpid(), SIGUSR1), kill(getpid(), 0));
	sigaction(SIGUSR1, &old, NULL);
	show(SIGUSR1);
	for (int s = 0; s < 67; s++) {
		errno = 0;
		int r = sigaction(s, &sa, NULL);
		if (r)
			printf("sigaction %d: %d %d\n", s, r, errno);
		else
			signal(s, SIG_DFL);
		errno = 0;
		r = signal(s, plain) == SIG_ERR;
		if (r)
			printf("signal %d: %d\n", s, errno);
		else
			signal(s, SIG_DFL);
	}
	errno = 0;
	printf("signal err %s %d\n", name((void *)signal(SIGUSR1, SIG_ERR)), errno);
	printf("kill errors %d", kill(getpid(), 99));
	printf(" %d", errno);
	printf(" %d %d\n", kill(0x7ffffff0, SIGUSR1), errno);
	status();

	printf("signal: %s", name((void *)signal(SIGUSR1, plain)));
	printf(" %s\n", name((void *)signal(SIGUSR1, plain)));
	show(SIGUSR1);
	siginterrupt(SIGUSR1, 1);
	show(SIGUSR1);
	signal(SIGUSR1, plain);
	show(SIGUSR1);
	siginterrupt(SIGUSR1, 0);
	signal(SIGUSR1, nests);
	show(SIGUSR1);
	printf("sysv: %s\n", name((void *)sysv_signal(SIGUSR1, plain)));
	show(SIGUSR1);
	raise(SIGUSR1);
	show(SIGUSR1);
	printf("bsd: %s\n", name((void *)bsd_signal(SIGUSR1, plain)));
	printf("ssignal: %s\n", name((void *)ssignal(SIGUSR1, SIG_IGN)));
	printf("sigset: %s", name((void *)sigset(SIGUSR1, plain)));
	printf(" %s", name((void *)sigset(SIGUSR1, SIG_HOLD)));
	printf(" %s\n", name((void *)sigset(SIGUSR1, nests)));
	show(SIGUSR1);
	sigignore(SIGUSR1);
	show(SIGUSR1);
	status();

	sa = (struct sigaction){.sa_handler = plain, .sa_flags = (int)SA_RESETHAND};
	sigaction(SIGUSR1, &sa, NULL);
	show(SIGUSR1);
	count = 0;
	raise(SIGUSR1);
	printf("reset: %d\n", count);
	show(SIGUSR1);
	sa = (struct sigaction){.sa_handler = nests, .sa_flags = SA_NODEFER};
	sigaction(SIGUSR1, &sa, NULL);
	raise(SIGUSR1);
	printf("nested %d\n", deepest);
	sa = (struct sigaction){.sa_handler = shows_mask};
	sigaddset(&sa.sa_mask, SIGTERM);
	sigaction(SIGUSR1, &sa, NULL);
	raise(SIGUSR1);
	sigset_t m;
	sigprocmask(SIG_BLOCK, NULL, &m);
	printf("mask after %d\n", sigismember(&m, SIGUSR1));
	sa = (struct sigaction){.sa_handler = changes_errno};
	sigaction(SIGUSR1, &sa, NULL);
	errno = 5;
	raise(SIGUSR1);
	printf("errno %d\n", errno);

	const size_t room = 64 << 10; /* not SIGSTKSZ: a printf without a buffer takes 8 KiB, which is all of it where the processor has little state */
	stack_t ss = {.ss_sp = malloc(room), .ss_size = room};
	sigaltstack(&ss, NULL);
	sa = (struct sigaction){.sa_sigaction = fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	sigaction(SIGSEGV, &sa, NULL);
	sigaction(SIGFPE, &sa, NULL);
	sigaction(SIGILL, &sa, NULL);
	for (int i = 0; i < 3; i++)
		if (sigsetjmp(jb, 1) == 0)
			*(volatile int *)0x10 = 1;
	if (sigsetjmp(jb, 1) == 0)
		__asm__ volatile("ud2");
	volatile int zero = 0;
	if (sigsetjmp(jb, 1) == 0)
		zero = 7 / zero;
	char *p = mmap(NULL, 8 * 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	sa = (struct sigaction){.sa_sigaction = fix, .sa_flags = SA_SIGINFO};
	sigaction(SIGSEGV, &sa, NULL);
	for (int i = 0; i < 8; i++)
		p[i * 4096 + 9] = (char)i;
	printf("fixed %d\n", p[7 * 4096 + 9]);

	sigemptyset(&m);
	sigaddset(&m, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &m, NULL);
	siginfo_t si;
	memset(&si, 0, sizeof si);
	raise(SIGUSR1);
	printf("sigwaitinfo %d %d\n", sigwaitinfo(&m, &si), si.si_code);
	sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 9});
	printf("sigtimedwait %d", sigtimedwait(&m, &si, &(struct timespec){1, 0}));
	printf(" %d\n", si.si_value.sival_int);
	raise(SIGUSR1);
	printf("sigwaitinfo null %d\n", sigwaitinfo(&m, NULL));
	errno = 0;
	printf("timeout %d", sigtimedwait(&m, &si, &(struct timespec){0, 1000}));
	printf(" %d\n", errno);
	pthread_t t[4];
	int got = 0;
	pthread_create(&t[0], NULL, taker, &got);
	pthread_kill(t[0], SIGUSR1);
	pthread_join(t[0], NULL);
	printf("sigwait %d\n", got);
	void *v;
	sigdelset(&m, SIGUSR1);
	pthread_create(&t[0], NULL, taker, &got);
	pthread_cancel(t[0]);
	pthread_join(t[0], &v);
	printf("sigwait cancelled %d\n", v == PTHREAD_CANCELED);

	signal(SIGUSR2, plain);
	for (long i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, many, (void *)i);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	pid_t pid = fork();
	if (pid == 0) {
		count = 0;
		signal(SIGUSR2, plain);
		raise(SIGUSR2);
		_exit(count + 10);
	}
	int st;
	waitpid(pid, &st, 0);
	printf("child %x\n", st);
	signal(SIGUSR2, SIG_DFL);
	pid = fork();
	if (pid == 0) {
		raise(SIGUSR2);
		_exit(0);
	}
	waitpid(pid, &st, 0);
	printf("killed %x\n", st);
	return 0;
}
