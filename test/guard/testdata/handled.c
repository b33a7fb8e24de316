// Handlers for crashes that say something and then have the process die as it would have, as servers and Rust's programs do. Told is the fault, where it was, in the thread that had it; with "clean" nothing.
// What each case says of itself is read by the test: the function in which the fault is told; "by epochs": only where handlers are entered by the agent (--epochs).
// case returns: fault
// case old: fault
// case raises: fault by epochs
// case kills: fault by epochs
// case thread: fault
// case stack: fault
// case clean:
// case sent:
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *how;
static sigjmp_buf out;
static struct { int *pointer; } *object;

static int is(const char *name) { return strcmp(how, name) == 0; }

__attribute__((noinline)) static void fault(void) { *object->pointer = 1; }

// What is asked after it was set is what was set.
static void set_default(int sig)
{
	struct sigaction a, is_now;
	memset(&a, 0, sizeof a);
	a.sa_handler = SIG_DFL;
	a.sa_flags = SA_NODEFER | SA_RESTART;
	sigaddset(&a.sa_mask, SIGUSR1);
	if (sigaction(sig, &a, NULL) || sigaction(sig, NULL, &is_now) || is_now.sa_handler != SIG_DFL || (is_now.sa_flags & ~0x04000000) != a.sa_flags || sigismember(&is_now.sa_mask, SIGUSR1) != 1 || sigismember(&is_now.sa_mask, SIGUSR2))
		_exit(7);
}

static void handler(int sig, siginfo_t *info, void *context)
{
	static const char said[] = "it crashes\n";
	(void)context;
	if (write(1, said, sizeof said - 1) < 0 || (info->si_code > 0 && info->si_addr))
		_exit(8);
	if (is("clean"))
		siglongjmp(out, 1);
	if (is("old")) {
		if (signal(sig, SIG_DFL) == SIG_ERR)
			_exit(9);
	} else
		set_default(sig);
	if (is("raises"))
		raise(sig);
	if (is("kills"))
		kill(getpid(), sig);
}

static void *run(void *arg)
{
	if (is("sent"))
		raise(SIGSEGV);
	else if (!is("clean"))
		fault();
	else if (!sigsetjmp(out, 1))
		fault();
	return arg;
}

int main(int argc, char **argv)
{
	struct sigaction a = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	static char stack[1 << 16];
	how = argv[argc - 1];
	object = calloc(1, sizeof *object);
	if (is("stack")) {
		stack_t s = {.ss_sp = stack, .ss_size = sizeof stack};
		a.sa_flags |= SA_ONSTACK;
		sigaltstack(&s, NULL);
	}
	if (is("sent"))
		signal(SIGSEGV, SIG_DFL);
	else
		sigaction(SIGSEGV, &a, NULL);
	if (is("thread")) {
		pthread_t t;
		pthread_create(&t, NULL, run, NULL);
		pthread_join(t, NULL);
	} else
		run(NULL);
	puts("it lives");
	return 0;
}
