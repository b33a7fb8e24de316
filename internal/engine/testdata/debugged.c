/* debugged.c: frames of every kind, for a debugger that steps through them: without one, with pushes, with a frame pointer, with memory of its own; a call through memory. Says its process id, and
 * waits to be let go. SIGUSR1 has it say what it sees of its stack in a handler, as addresses less that of walked: the interrupted instruction, and behind it the callers. */
#define _GNU_SOURCE
#include <alloca.h>
#include <execinfo.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

volatile int go;
typedef long function(volatile long *, long);

__attribute__((noinline)) static long leaf(volatile long *p, long n)
{
	p[1] += n;
	return p[0] - p[1];
}

static function *volatile through = leaf;

__attribute__((noinline)) static long pushes(volatile long *p, long n)
{
	long a = p[2], b = p[3], c = p[4];
	long r = through(p, n);
	p[2] = a + r;
	p[3] = b - r + through(p, a);
	p[4] = c ^ r;
	return r + a + b + c;
}

__attribute__((noinline, optimize("no-omit-frame-pointer"))) static long frame(volatile long *p, long n)
{
	volatile long *q = alloca((size_t)n * sizeof *q);
	q[n - 1] = n;
	p[5] += pushes(p, q[n - 1]);
	return p[5] + q[n - 1];
}

__attribute__((noinline)) static long walked(volatile long *p)
{
	long r = frame(p, 3);
	p[6] = r;
	return r + frame(p, 4);
}

static void look(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)info;
	uintptr_t pc = (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
	void *list[64];
	char text[2000], *s = text;
	int n = backtrace(list, 64), i = 0;
	while (i < n && (uintptr_t)list[i] != pc)
		i++;
	for (; i < n && s < text + sizeof text - 20; i++) /* in hexadecimal, by hand: this may interrupt printf */
		for (int shift = 60; shift >= -4; shift -= 4)
			*s++ = shift < 0 ? ' ' : "0123456789abcdef"[((uintptr_t)list[i] - (uintptr_t)walked) >> shift & 15];
	*s++ = '\n';
	if (write(1, text, (size_t)(s - text)) < 0)
		_exit(1);
	kill(getpid(), SIGUSR2);
}

int main(void)
{
	void *warm[4];
	backtrace(warm, 4);
	struct sigaction sa = {.sa_sigaction = look, .sa_flags = SA_SIGINFO};
	sigaction(SIGUSR1, &sa, NULL);
	static long list[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	printf("%d\n", getpid());
	fflush(stdout);
	while (!go)
		usleep(1000);
	kill(getpid(), SIGUSR2);
	printf("%ld\n", walked(list));
	return 0;
}
