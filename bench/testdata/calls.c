/* Loops of one system call: calls KIND N prints the least of the nanoseconds of a call in 40 pieces. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static long n;
static void libc_getppid(void) { for (long i = 0; i < n; i++) getppid(); }
static void by_syscall(void) { for (long i = 0; i < n; i++) syscall(SYS_getppid); }
static void failing(void) { for (long i = 0; i < n; i++) close(-1); }
static void vdso(void) { struct timespec t; for (long i = 0; i < n; i++) clock_gettime(CLOCK_MONOTONIC, &t); }

int main(int argc, char **argv)
{
	static const struct { const char *name; void (*f)(void); } kinds[] = {
		{"getppid", libc_getppid}, {"syscall()", by_syscall}, {"close(-1)", failing}, {"clock_gettime", vdso},
	};
	n = argc == 3 ? atol(argv[2]) / 40 : 0;
	for (unsigned i = 0; n > 0 && i < sizeof kinds / sizeof *kinds; i++) {
		if (strcmp(argv[1], kinds[i].name) != 0)
			continue;
		double least = 1e18;
		for (int k = 0; k < 40; k++) {
			struct timespec a, b;
			clock_gettime(CLOCK_MONOTONIC, &a);
			kinds[i].f();
			clock_gettime(CLOCK_MONOTONIC, &b);
			double ns = ((b.tv_sec - a.tv_sec) * 1e9 + (b.tv_nsec - a.tv_nsec)) / n;
			least = ns < least ? ns : least;
		}
		printf("%.2f\n", least);
		return 0;
	}
	fprintf(stderr, "usage: calls KIND N\n");
	return 2;
}
