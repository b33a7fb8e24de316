/* steps.c: steps through some functions, and has each instruction executed elsewhere by the agent. It says how many steps there were, whatever executed them. */
#define _GNU_SOURCE
#include "known.h"
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

static int (*pass)(void *);
static unsigned long steps, results[3], strange;

static void step(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)info;
	steps++;
	if (!is_known((uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP]))
		strange++;
	if (pass)
		results[pass(context) % 3]++;
}

static int ascending(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

static void sort(int *v, int n)
{
	for (int i = 1; i < n; i++)
		for (int j = i; j > 0 && ascending(v + j - 1, v + j) > 0; j--) {
			int t = v[j];
			v[j] = v[j - 1];
			v[j - 1] = t;
		}
}

static void begin(void) { __asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\torq $0x100, (%%rsp)\n\tpopfq\n\tlea 128(%%rsp), %%rsp" : : : "memory", "cc"); }
static void end(void) { __asm__ volatile("lea -128(%%rsp), %%rsp\n\tpushfq\n\tandq $~0x100, (%%rsp)\n\tpopfq\n\tlea 128(%%rsp), %%rsp" : : : "memory", "cc"); }

int main(int argc, char **argv)
{
	static char text[256], copy[256];
	int v[8], at = 0;
	if (argc < 2 || strcmp(argv[1], "plainly") != 0)
		pass = (int (*)(void *))dlsym(RTLD_DEFAULT, "ripstop_patch_pass");
	know();
	struct sigaction sa = {.sa_sigaction = step, .sa_flags = SA_SIGINFO};
	sigfillset(&sa.sa_mask);
	sigaction(SIGTRAP, &sa, NULL);
	for (int i = 0; i < 8; i++)
		v[i] = i * 7919 % 101;
	begin();
	sort(v, 8);
	for (int i = 0; i < 8; i++)
		at += snprintf(text + at, sizeof text - (size_t)at, "%d %s\n", v[i], i & 1 ? "odd" : "even");
	at += snprintf(text + at, sizeof text - (size_t)at, "%a %.5g\n", v[1] / 3.0, v[2] * 1e3);
	memmove(copy + 5, text, (size_t)at);
	memcpy(copy, "begin", 5);
	double d = strtod("2.71e-2", NULL);
	char *found = strstr(copy, "0x1"), *last = strrchr(copy, 'o'), *there = memmem(copy, sizeof copy, "odd\n2", 5);
	int differ = memcmp(copy + 5, text, (size_t)at);
	end();
	printf("%s%.17g %d %d %d %d\n%lu steps, %lu strange\n", copy, d, found ? (int)(found - copy) : -1, (int)(last - copy), there ? (int)(there - copy) : -1, differ, steps, strange);
	if (pass)
		fprintf(stderr, "passed %lu, again %lu, left %lu\n", results[0], results[1], results[2]);
	return 0;
}
