// Signals of threads that have no alternate stack, as the program sees them: where its handlers run, what sigaltstack and sigaction say. Prints how many there were and 0, or the bits of what is not as the kernel has it.
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TIMES = 20, RESTORER = 0x4000000 };
static int handled, wrong;
static __thread sigjmp_buf out;
static __thread char *near;

static void is(int bit, int so) { __atomic_fetch_or(&wrong, so ? 0 : 1 << bit, __ATOMIC_RELAXED); }

static void handler(int sig, siginfo_t *info, void *context)
{
	char here;
	stack_t s;
	(void)context;
	is(0, sigaltstack(NULL, &s) == 0 && s.ss_flags & SS_DISABLE && !s.ss_sp && !s.ss_size);
	is(1, labs(&here - near) < 1 << 16);
	is(2, info->si_signo == sig);
	__atomic_fetch_add(&handled, 1, __ATOMIC_RELAXED);
}

static char *own_from, *own_to;

static void beside(int sig)
{
	char here;
	(void)sig;
	is(12, labs(&here - near) < 1 << 16);
}

static void on_own(int sig)
{
	char here;
	(void)sig;
	is(13, &here >= own_from && &here < own_to);
}

static void leaves(int sig)
{
	(void)sig;
	siglongjmp(out, 1);
}

// One that waits, one that runs at once (it lets the epoch be lost), one in that epoch, one that is left.
static __attribute__((noinline)) void some(void)
{
	char here;
	sigset_t one, old;
	struct sigaction a;
	stack_t s;
	near = &here;
	sigemptyset(&one);
	sigaddset(&one, SIGUSR1);
	raise(SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &one, &old);
	raise(SIGUSR1);
	sigsuspend(&old);
	pthread_sigmask(SIG_UNBLOCK, &one, NULL);
	raise(SIGUSR1);
	if (!sigsetjmp(out, 1))
		raise(SIGUSR2);
	is(3, sigaction(SIGUSR1, NULL, &a) == 0 && (a.sa_flags & ~RESTORER) == SA_SIGINFO && a.sa_sigaction == handler);
	is(4, sigaction(SIGUSR2, NULL, &a) == 0 && !(a.sa_flags & SA_ONSTACK));
	memset(&s, 1, sizeof s);
	is(5, sigaltstack(NULL, &s) == 0 && s.ss_flags & SS_DISABLE && !s.ss_sp && !s.ss_size);
}

static void *work(void *arg)
{
	for (int i = 0; i < TIMES; i++) {
		some();
		usleep(1000);
	}
	return arg;
}

// A child with a stack of its own, on which those handlers run that ask for it.
static void with_child(int bit, const stack_t *s)
{
	char here;
	int status;
	pid_t child = fork();
	if (child == 0) {
		struct sigaction a = {.sa_handler = beside}, b = {.sa_handler = on_own, .sa_flags = SA_ONSTACK};
		sigaction(SIGHUP, &a, NULL);
		work(NULL);
		near = &here;
		own_from = s->ss_sp, own_to = own_from + s->ss_size;
		is(14, sigaltstack(s, NULL) == 0);
		sigaction(SIGWINCH, &b, NULL);
		sigaction(SIGURG, &a, NULL);
		raise(SIGHUP), raise(SIGWINCH), raise(SIGURG);
		fprintf(stderr, wrong ? "a child: %x\n" : "", wrong);
		_exit(!!wrong);
	}
	is(bit, waitpid(child, &status, 0) == child && status == 0);
}

int main(void)
{
	static char own[1 << 16];
	struct sigaction a = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO}, b = {.sa_handler = leaves};
	stack_t s = {.ss_sp = own, .ss_size = sizeof own}, old;
	pthread_t t;
	sigaction(SIGUSR1, &a, NULL);
	sigaction(SIGUSR2, &b, NULL);
	pthread_create(&t, NULL, work, NULL);
	work(NULL);
	pthread_join(t, NULL);
	with_child(15, &s);
	// One of its own, and none again.
	is(6, sigaltstack(&s, &old) == 0 && old.ss_flags & SS_DISABLE);
	is(7, sigaction(SIGUSR1, NULL, &b) == 0 && (b.sa_flags & ~RESTORER) == SA_SIGINFO);
	is(8, sigaltstack(NULL, &old) == 0 && old.ss_sp == own && old.ss_size == sizeof own);
	s.ss_flags = SS_DISABLE;
	is(9, sigaltstack(&s, &old) == 0 && old.ss_sp == own);
	is(10, sigaltstack((void *)8, NULL) != 0);
	work(NULL);
	s.ss_flags = 0;
	with_child(11, &s);
	printf("%d %x\n", handled, wrong);
	return 0;
}
