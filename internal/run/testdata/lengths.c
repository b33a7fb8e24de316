/* Waits with a timeout, with nothing that would end them earlier: prints how long each was, in us. Argument 1: how long they are to be, in ms. */
#define _GNU_SOURCE
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int ms, epoll, pipes[2];
static struct timespec span;

static void polls(void)
{
	struct pollfd p = {.fd = pipes[0], .events = POLLIN};
	poll(&p, 1, ms);
}

/* Two of them: not what is quick. */
static void polls_two(void)
{
	struct pollfd p[2] = {{.fd = pipes[0], .events = POLLIN}, {.fd = pipes[0], .events = POLLIN}};
	poll(p, 2, ms);
}

static void epolls(void)
{
	struct epoll_event e;
	epoll_wait(epoll, &e, 1, ms);
}

static void epolls_masked(void)
{
	struct epoll_event e;
	sigset_t none;
	sigemptyset(&none);
	epoll_pwait(epoll, &e, 1, ms, &none);
}

static void sleeps(void) { nanosleep(&span, NULL); }
static void sleeps_by_clock(void) { clock_nanosleep(CLOCK_MONOTONIC, 0, &span, NULL); }

static void waits_for_signal(void)
{
	sigset_t set;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	sigtimedwait(&set, NULL, &span);
}

static void waits_for_word(void)
{
	static int word;
	syscall(SYS_futex, &word, 0, 0, &span, NULL, 0);
}

int main(int argc, char **argv)
{
	static const struct { const char *name; void (*wait)(void); } kinds[] = {
		{"poll", polls}, {"poll_two", polls_two}, {"epoll_wait", epolls}, {"epoll_pwait", epolls_masked}, {"nanosleep", sleeps}, {"clock_nanosleep", sleeps_by_clock}, {"sigtimedwait", waits_for_signal}, {"futex", waits_for_word},
	};
	sigset_t usr2;
	ms = argc > 1 ? atoi(argv[1]) : 200;
	span = (struct timespec){ms / 1000, ms % 1000 * 1000000L};
	sigemptyset(&usr2);
	sigaddset(&usr2, SIGUSR2);
	sigprocmask(SIG_BLOCK, &usr2, NULL);
	epoll = epoll_create1(0);
	if (pipe(pipes) != 0)
		return 1;
	struct epoll_event e = {.events = EPOLLIN};
	epoll_ctl(epoll, EPOLL_CTL_ADD, pipes[0], &e);
	for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
		for (int k = 0; k < 2; k++) {
			struct timespec before, after;
			clock_gettime(CLOCK_MONOTONIC, &before);
			kinds[i].wait();
			clock_gettime(CLOCK_MONOTONIC, &after);
			printf("%s %ld\n", kinds[i].name, (after.tv_sec - before.tv_sec) * 1000000L + (after.tv_nsec - before.tv_nsec) / 1000);
		}
	return 0;
}
