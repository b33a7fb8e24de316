/* debugged.c: frames of every kind, for a debugger that steps through them: without one, with pushes, with a frame pointer, with memory of its own; a call through memory. Says its process id, and
 * waits to be let go. */
#include <alloca.h>
#include <signal.h>
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

int main(void)
{
	static long list[8] = {1, 2, 3, 4, 5, 6, 7, 8};
	printf("%d\n", getpid());
	fflush(stdout);
	while (!go)
		usleep(1000);
	kill(getpid(), SIGUSR2);
	printf("%ld\n", walked(list));
	return 0;
}
