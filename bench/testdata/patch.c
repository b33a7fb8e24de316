/* patch.c: loops that are nothing but memory instructions, for what a trampoline at each of them costs: patch KIND N prints nanoseconds of CPU time per round. And requests to the
 * engine, one after the other or each a while after the last: nanoseconds of the median, the mean and the 99th percentile; of those that do not wait for their patch (soon) up to where the thread would
 * execute a copy of the instruction. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static double now(clockid_t c)
{
	struct timespec ts;
	clock_gettime(c, &ts);
	return ts.tv_sec * 1e9 + ts.tv_nsec;
}

enum { SIDE = 256, ITEMS = 4096, NODES = 1 << 16 };
static double a[SIDE][SIDE], b[SIDE][SIDE];

__attribute__((noinline)) static void stencil(void)
{
	for (int i = 1; i < SIDE - 1; i++)
		for (int j = 1; j < SIDE - 1; j++)
			b[i][j] = 0.2 * (a[i][j] + a[i - 1][j] + a[i + 1][j] + a[i][j - 1] + a[i][j + 1]);
	for (int i = 1; i < SIDE - 1; i++)
		for (int j = 1; j < SIDE - 1; j++)
			a[i][j] = b[i][j];
}

static int items[ITEMS];

__attribute__((noinline)) static void quicksort(int *v, int n)
{
	while (n > 1) {
		int p = v[n / 2], i = 0, j = n - 1;
		for (;;) {
			while (v[i] < p)
				i++;
			while (v[j] > p)
				j--;
			if (i >= j)
				break;
			int t = v[i];
			v[i++] = v[j];
			v[j--] = t;
		}
		quicksort(v, i);
		v += i;
		n -= i;
	}
}

struct node { struct node *next; long v; };
static struct node nodes[NODES];

__attribute__((noinline)) static long chase(int n)
{
	struct node *p = nodes;
	long s = 0;
	while (n--) {
		s += p->v;
		p = p->next;
	}
	return s;
}

static int order(const void *x, const void *y)
{
	double d = *(const double *)x - *(const double *)y;
	return d < 0 ? -1 : d > 0;
}

/* The longest one is left out of the mean: the first one has the module looked at. */
static void tell(double *t, int n)
{
	double sum = 0;
	qsort(t, (size_t)n, sizeof *t, order);
	for (int i = 0; i < n - 1; i++)
		sum += t[i];
	printf("%.1f %.1f %.1f\n", t[n / 2], sum / (n - 1), t[n - 1 - n / 100]);
}

enum { SITES = 4096, PIECE = 8 };
extern char block[];
__asm__(".text\n.globl block\n.type block, @function\nblock:\n.rept 4096\n	mov 16(%rdi), %rax\n	lea (%rax,%rax), %rdx\n.endr\n	ret\n.size block, .-block\n");

/* Each of n places of the block is asked for once, by the function's name. */
static int places(const char *name, int n, int apart)
{
	int (*ask)(uintptr_t) = (int (*)(uintptr_t))dlsym(RTLD_DEFAULT, name), (*pass)(void *) = (int (*)(void *))dlsym(RTLD_DEFAULT, "ripstop_patch_pass");
	double *t = calloc((size_t)n, sizeof *t);
	ucontext_t uc;
	memset(&uc, 0, sizeof uc);
	if (!ask || !pass || n > SITES)
		return 1;
	for (int i = 0; i < n; i++) {
		uintptr_t at = (uintptr_t)block + (uintptr_t)(i * 1237 % SITES) * PIECE;
		if (apart)
			usleep(2000);
		double t0 = now(CLOCK_MONOTONIC);
		if (ask(at)) {
			uc.uc_mcontext.gregs[REG_RIP] = (greg_t)at;
			if (pass(&uc))
				return 1;
		}
		t[i] = now(CLOCK_MONOTONIC) - t0;
	}
	tell(t, n);
	return 0;
}

int main(int argc, char **argv)
{
	const char *kind = argc > 1 ? argv[1] : "";
	int n = argc > 2 ? atoi(argv[2]) : 1;
	int apart = !strcmp(kind, "apart");
	if (apart || !strcmp(kind, "request")) {
		int (*ask)(uintptr_t) = (int (*)(uintptr_t))dlsym(RTLD_DEFAULT, "ripstop_patch_test");
		double *t = calloc((size_t)n, sizeof *t);
		for (int i = 0; ask && i < n; i++) {
			if (apart)
				usleep(2000);
			double t0 = now(CLOCK_MONOTONIC);
			if (ask((uintptr_t)i))
				return 1;
			t[i] = now(CLOCK_MONOTONIC) - t0;
		}
		tell(t, n);
		return 0;
	}
	if (!strcmp(kind, "soon") || !strcmp(kind, "soon-apart"))
		return places("ripstop_patch_soon", n, kind[4]);
	if (!strcmp(kind, "site") || !strcmp(kind, "site-apart"))
		return places("ripstop_patch_site", n, kind[4]);
	uint32_t x = 1;
	for (int i = 0; i < NODES; i++) {
		x = x * 1664525 + 1013904223;
		nodes[i].next = &nodes[(i * 40503u + 1) % NODES];
		nodes[i].v = x;
	}
	for (int i = 0; i < SIDE; i++)
		for (int j = 0; j < SIDE; j++)
			a[i][j] = i * j % 17;
	long keep = 0;
	double sum = 0;
	for (int i = -1; i < n; i++) { /* once to warm up */
		if (!strcmp(kind, "quicksort"))
			for (int k = 0; k < ITEMS; k++) {
				x = x * 1664525 + 1013904223;
				items[k] = (int)(x >> 8);
			}
		double t0 = now(CLOCK_THREAD_CPUTIME_ID);
		if (!strcmp(kind, "stencil"))
			stencil();
		else if (!strcmp(kind, "quicksort"))
			quicksort(items, ITEMS);
		else
			keep += chase(NODES);
		if (i >= 0)
			sum += now(CLOCK_THREAD_CPUTIME_ID) - t0;
	}
	if (keep == 42)
		puts("");
	printf("%.1f\n", sum / n);
	return 0;
}
