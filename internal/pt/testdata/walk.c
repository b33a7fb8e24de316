// A small program with every kind of control flow that Intel PT tells of in a special way: conditional and indirect branches, deep
// recursion beyond the 64 returns that the processor remembers, tail calls, longjmp out of calls, string instructions, system calls, and
// signals, sent and from a timer, with handlers that return and one that does not.
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

static volatile sig_atomic_t hits;
static jmp_buf out;
static sigjmp_buf from_handler;

static void on_signal(int sig) {
	hits += sig;
}

static void on_jump(int sig) {
	(void)sig;
	siglongjmp(from_handler, 1);
}

__attribute__((noinline)) static unsigned deep(unsigned n) {
	return n ? 1 + deep(n - 1) : 0;
}

__attribute__((noinline)) static int leave(int n) {
	if (n == 0) {
		longjmp(out, 1);
	}
	return n < 0 ? 0 : 1 + leave(n - 1);
}

__attribute__((noinline)) static int even(unsigned n);
__attribute__((noinline)) static int odd(unsigned n) {
	return n == 0 ? 0 : even(n - 1);
}
__attribute__((noinline)) static int even(unsigned n) {
	return n == 0 ? 1 : odd(n - 1);
}

__attribute__((noinline)) static unsigned op(unsigned what, unsigned v) {
	switch (what % 8) {
	case 0: return v + 3;
	case 1: return v * 5;
	case 2: return v >> 1;
	case 3: return v ^ 0x55;
	case 4: return ~v;
	case 5: return v - 7;
	case 6: return v << 2;
	default: return v | 1;
	}
}

static int compare(const void *a, const void *b) {
	return *(const int *)a - *(const int *)b;
}

int main(void) {
	signal(SIGUSR1, on_signal);
	signal(SIGALRM, on_signal);
	signal(SIGUSR2, on_jump);
	unsigned v = 1;
	for (unsigned i = 0; i < 300; i++) {
		v = op(v + i, v);
	}
	v += deep(200) + (unsigned)even(51);
	if (setjmp(out) == 0) {
		v += (unsigned)leave(20);
	}
	int numbers[64];
	for (int i = 0; i < 64; i++) {
		numbers[i] = (int)(i * 2654435761u >> 8);
	}
	qsort(numbers, 64, sizeof(numbers[0]), compare);
	static char a[5000], b[5000];
	memset(a, (int)v, sizeof(a));
	size_t n = sizeof(a);
	void *to = b;
	const void *source = a;
	__asm__ volatile("rep movsb" : "+D"(to), "+S"(source), "+c"(n) : : "memory");
	__asm__ volatile("call 1f\n1:\tpop %%rax\n\txor %%ecx, %%ecx\n\tjrcxz 2f\n\tnop\n2:\tmov $9, %%ecx\n3:\tloop 3b" : : : "rax", "rcx", "cc");
	raise(SIGUSR1);
	if (sigsetjmp(from_handler, 1) == 0) {
		raise(SIGUSR2);
	}
	struct itimerval every = {{0, 3000}, {0, 3000}};
	setitimer(ITIMER_REAL, &every, NULL);
	for (unsigned i = 0; hits < SIGUSR1 + 3 * SIGALRM && i < 4000; i++) {
		v = op(i, v);
	}
	memset(&every, 0, sizeof(every));
	setitimer(ITIMER_REAL, &every, NULL);
	char text[64];
	int len = snprintf(text, sizeof(text), "%d %d\n", memcmp(a, b, sizeof(a)), numbers[0] <= numbers[63]);
	return write(1, text, (size_t)len) == len ? 0 : 1;
}
