// What is left of a wait is told where the kernel tells it, and nowhere else: a sleep that nothing ends leaves what it is given as it is, also where that is what was asked for; one that a signal ends says how much is left, and so do select and ppoll when they
// return. And a call leaves all registers but rax, rcx and r11 as they were, one that waits for long, too. Prints the same in each run.
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { TIMES = 8, SLEEP = 30000000, ALL = 400000 };

static void nothing(int sig) { (void)sig; }

static void check(const char *what, int fine)
{
	if (!fine)
		printf("%s\n", what);
}

// The registers of a call behind it, two of vectors among them.
static int64_t kept(int64_t number, const int64_t was[6])
{
	int64_t r, some = 0x1122334455667788, also = some, none = 0;
	register int64_t r10 __asm__("r10") = was[3], r8 __asm__("r8") = was[4], r9 __asm__("r9") = was[5], rdi = was[0], rsi = was[1], rdx = was[2];
	__asm__ volatile("movq %7, %%xmm0\n\tmovq %7, %%xmm1\n\tsyscall\n\tmovq %%xmm0, %7\n\tmovq %%xmm1, %8"
		: "=a"(r), "+D"(rdi), "+S"(rsi), "+d"(rdx), "+r"(r10), "+r"(r8), "+r"(r9), "+r"(some), "+r"(none) : "0"(number) : "rcx", "r11", "memory", "xmm0", "xmm1");
	const int same = rdi == was[0] && rsi == was[1] && rdx == was[2] && r10 == was[3] && r8 == was[4] && r9 == was[5]; /* before a function is called */
	check("registers", same);
	check("vectors", some == also && none == also);
	return r;
}

static int ends[2];
static char bytes[ALL];
static void *takes(void *arg)
{
	static char some[ALL / 10];
	for (int n = 0; n < ALL;) {
		const struct timespec t = {0, SLEEP / 3};
		nanosleep(&t, NULL);
		ssize_t r = read(ends[0], some, sizeof some);
		if (r <= 0)
			abort();
		n += (int)r;
	}
	return arg;
}

int main(void)
{
	struct timespec ts = {0, SLEEP}, rem = {7, 7};
	for (int i = 0; i < TIMES; i++) {
		check("nanosleep", nanosleep(&ts, &ts) == 0 && ts.tv_sec == 0 && ts.tv_nsec == SLEEP);
		check("clock_nanosleep", clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, &rem) == 0 && ts.tv_nsec == SLEEP && rem.tv_sec == 7 && rem.tv_nsec == 7);
		kept(SYS_nanosleep, (int64_t[]){(intptr_t)&ts, (intptr_t)&ts, 3, 4, 5, 6});
		kept(SYS_clock_nanosleep, (int64_t[]){CLOCK_MONOTONIC, 0, (intptr_t)&ts, (intptr_t)&rem, 5, 6});
		kept(SYS_poll, (int64_t[]){0, 0, SLEEP / 1000000, 4, 5, 6});
		check("registers' rem", rem.tv_sec == 7 && rem.tv_nsec == 7 && ts.tv_nsec == SLEEP);
	}
	for (int i = 0; i < TIMES; i++) {
		struct timeval tv = {0, SLEEP / 1000};
		struct timespec left = {0, SLEEP}, *anywhere = malloc(sizeof *anywhere);
		*anywhere = left;
		check("select", select(0, NULL, NULL, NULL, &tv) == 0 && tv.tv_sec == 0 && tv.tv_usec == 0);
		check("SYS_ppoll", syscall(SYS_ppoll, NULL, 0, anywhere, NULL, 8) == 0 && anywhere->tv_sec == 0 && anywhere->tv_nsec == 0);
		check("SYS_pselect6", syscall(SYS_pselect6, 0, NULL, NULL, NULL, &left, NULL) == 0 && left.tv_sec == 0 && left.tv_nsec == 0);
		free(anywhere);
	}
	const struct sigaction act = {.sa_handler = nothing};
	sigaction(SIGALRM, &act, NULL);
	struct sigevent ev = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM};
	timer_t timer;
	timer_create(CLOCK_MONOTONIC, &ev, &timer);
	const struct itimerspec soon = {.it_value = {0, 2 * SLEEP}};
	for (int i = 0; i < 3; i++) {
		ts = (struct timespec){20, 0};
		timer_settime(timer, 0, &soon, NULL);
		long r = i == 0 ? nanosleep(&ts, &ts) : i == 1 ? syscall(SYS_ppoll, NULL, 0, &ts, NULL, 8) : syscall(SYS_pselect6, 0, NULL, NULL, NULL, &ts, NULL);
		check("interrupted", r == -1 && errno == EINTR && ts.tv_sec == 19);
	}
	check("nowhere", syscall(SYS_nanosleep, (void *)8, NULL) == -1 && errno == EFAULT && syscall(SYS_ppoll, NULL, 0, (void *)8, NULL, 8) == -1 && errno == EFAULT);
	timer_settime(timer, 0, &soon, NULL);
	ts = (struct timespec){20, 0};
	check("nowhere to tell it", syscall(SYS_nanosleep, &ts, (void *)8) == -1 && errno == EFAULT);
	pthread_t t;
	if (pipe(ends) || pthread_create(&t, NULL, takes, NULL))
		abort();
	check("bytes", kept(SYS_write, (int64_t[]){ends[1], (intptr_t)bytes, ALL, 4, 5, 6}) == ALL);
	pthread_join(t, NULL);
	puts("over");
}
