/* hot.c: threads run functions whose instructions are patched and unpatched all the while and which signals interrupt, and check what comes of them. hot SECONDS THREADS. With no threads
 * the one that asks for changes runs the functions by itself, in between. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int (*patch)(uintptr_t);
static volatile int stop;
static unsigned long bad, rounds;

struct node { struct node *next; long v; };

__attribute__((noinline)) static uint64_t hash(const unsigned char *p, size_t n)
{
	uint64_t h = 1469598103934665603ull;
	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 1099511628211ull;
	return h;
}

__attribute__((noinline)) static void sort(int *a, int n)
{
	for (int i = 1; i < n; i++) {
		int x = a[i], j = i;
		for (; j > 0 && a[j - 1] > x; j--)
			a[j] = a[j - 1];
		a[j] = x;
	}
}

__attribute__((noinline)) static long chase(struct node *n, int count)
{
	long s = 0;
	while (count--) {
		s = s * 31 + n->v;
		n = n->next;
	}
	return s;
}

__attribute__((noinline)) static double stencil(double *a, double *b, int n)
{
	for (int k = 0; k < 4; k++)
		for (int i = 1; i < n - 1; i++)
			b[i] = a[i - 1] * 0.25 + a[i] * 0.5 + a[i + 1] * 0.25, a[i] = b[i] + 1e-9;
	return b[n / 2];
}

__attribute__((noinline)) static int text(char *s, size_t n, int x)
{
	int r = 0;
	for (size_t i = 0; i + 1 < n; i++) {
		s[i] = (char)('a' + (x + (int)i * 7) % 26);
		switch (s[i]) {
		case 'a': r += 1; break;
		case 'e': r ^= 3; break;
		case 'i': r += 7; break;
		case 'o': r -= 2; break;
		case 'u': r += r & 1; break;
		default: r++;
		}
	}
	s[n - 1] = 0;
	return r + (int)strlen(s);
}

struct answer { uint64_t h; int s; long c; double d; int t; };

__attribute__((noinline)) static struct answer work(int x)
{
	unsigned char buf[200];
	int a[40];
	struct node n[16];
	double u[64], v[64];
	char s[64];
	struct answer r;
	memset(&r, 0, sizeof r);
	for (int i = 0; i < 200; i++)
		buf[i] = (unsigned char)(x * i);
	for (int i = 0; i < 40; i++)
		a[i] = (x + i) * 7919 % 101;
	for (int i = 0; i < 16; i++)
		n[i].next = &n[(i * 5 + 1) % 16], n[i].v = x + i;
	for (int i = 0; i < 64; i++)
		u[i] = x + i * 0.5, v[i] = 0;
	r.h = hash(buf, sizeof buf);
	sort(a, 40);
	for (int i = 0; i < 40; i++)
		r.s = r.s * 3 + a[i];
	r.c = chase(n, 50);
	r.d = stencil(u, v, 64);
	r.t = text(s, sizeof s, x);
	return r;
}

static struct answer right[16];
static volatile sig_atomic_t signals;

static void on_signal(int sig)
{
	(void)sig;
	struct answer a = work(3);
	if (memcmp(&a, &right[3], sizeof a))
		__atomic_add_fetch(&bad, 1, __ATOMIC_RELAXED);
	signals++;
}

static void *worker(void *arg)
{
	unsigned x = (unsigned)(uintptr_t)arg;
	while (!stop) {
		struct answer a = work((int)(x % 16));
		if (memcmp(&a, &right[x % 16], sizeof a))
			__atomic_add_fetch(&bad, 1, __ATOMIC_RELAXED);
		__atomic_add_fetch(&rounds, 1, __ATOMIC_RELAXED);
		x++;
	}
	return NULL;
}

struct targets { pthread_t *t; int n; };

/* Interrupts the threads all the time, wherever they are. */
static void *shooter(void *arg)
{
	const struct targets *all = arg;
	for (unsigned n = 0; !stop; n++) {
		pthread_kill(all->t[n % (unsigned)all->n], SIGUSR1);
		if (n % 4 == 0)
			usleep(1000);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	int seconds = argc > 1 ? atoi(argv[1]) : 1, threads = argc > 2 ? atoi(argv[2]) : 3;
	pthread_t t[64];
	if (argc > 3)
		puts("begins"), fflush(stdout);
	patch = (int (*)(uintptr_t))dlsym(RTLD_DEFAULT, "ripstop_patch_test");
	for (int i = 0; i < 16; i++)
		right[i] = work(i);
	signal(SIGUSR1, on_signal);
	for (int i = 0; i < threads; i++)
		pthread_create(&t[i], NULL, worker, (void *)(uintptr_t)(i * 5));
	struct targets all = {t, threads};
	pthread_t shoots;
	if (threads)
		pthread_create(&shoots, NULL, shooter, &all);
	time_t end = time(NULL) + seconds;
	int failed = 0;
	for (unsigned n = 0; time(NULL) < end; n++) {
		int r = patch ? patch(n) : 0;
		if (r)
			failed = r;
		if (!threads) {
			struct answer a = work((int)(n % 16));
			if (memcmp(&a, &right[n % 16], sizeof a))
				bad++;
			raise(SIGUSR1);
			rounds++;
		}
		if (!patch)
			usleep(1000);
	}
	stop = 1;
	if (threads)
		pthread_join(shoots, NULL);
	for (int i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
	printf("bad %lu, failed %d, %s\n", bad, failed, rounds && signals ? "ran" : "did not run");
	return 0;
}
