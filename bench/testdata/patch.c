/* patch.c: loops that are nothing but memory instructions, for what a trampoline at each of them costs: patch KIND N prints nanoseconds of CPU time per round. And requests to the
 * engine, one after the other or each a while after the last: nanoseconds of the median and of the 99th percentile. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
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
		qsort(t, (size_t)n, sizeof *t, order);
		printf("%.1f %.1f\n", t[n / 2], t[n - 1 - n / 100]);
		return 0;
	}
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
