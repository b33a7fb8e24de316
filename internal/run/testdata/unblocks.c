// A thread begins with all signals blocked, as its creator has them, and lets them through by a system call instruction of its own, as Go's runtime does; then SIGTRAP is sent to it.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static pthread_t thread;
static volatile sig_atomic_t handled, ready;

static void handler(int sig)
{
	(void)sig;
	handled = pthread_equal(pthread_self(), thread) ? 1 : 2;
}

static void *lets_through(void *arg)
{
	static const unsigned long none;
	long r = SYS_rt_sigprocmask;
	register long size __asm__("r10") = sizeof none;
	__asm__ volatile("syscall" : "+a"(r) : "D"(SIG_SETMASK), "S"(&none), "d"(NULL), "r"(size) : "rcx", "r11", "memory");
	ready = r == 0 ? 1 : 2;
	while (!handled)
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	return arg;
}

int main(void)
{
	sigset_t all;
	alarm(20); /* it does not come */
	sigaction(SIGTRAP, &(struct sigaction){.sa_handler = handler}, NULL);
	sigfillset(&all);
	sigdelset(&all, SIGALRM);
	pthread_sigmask(SIG_SETMASK, &all, NULL);
	pthread_create(&thread, NULL, lets_through, NULL);
	while (!ready)
		nanosleep(&(struct timespec){0, 1000000}, NULL);
	pthread_kill(thread, SIGTRAP);
	pthread_join(thread, NULL);
	printf("%d %d\n", (int)ready, (int)handled);
	return 3;
}
