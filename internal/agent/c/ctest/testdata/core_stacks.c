// Takes stacks in many situations. At each, prints what glibc's backtrace() says of the same place, from the caller of the function that
// makes the event: the name given to a thread tells them apart.
#define _GNU_SOURCE
#include <alloca.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

static volatile int sink;

// A cancel of a thread that does not mind is an event with a stack.
static pthread_t victim;
__attribute__((noinline, noclone)) void mark(const char *name)
{
	void *pc[64];
	pthread_cancel(victim);
	int n = backtrace(pc, 64);
	printf("%s", name);
	for (int i = 1; i < n; i++)
		printf(" %lx", (unsigned long)pc[i]);
	printf("\n");
	sink++;
}
__attribute__((noinline, noclone)) static void plain(int depth, const char *name)
{
	if (depth)
		plain(depth - 1, name);
	else
		mark(name);
	sink++;
}
__attribute__((noinline, noclone)) static void with_alloca(int n, const char *name)
{
	char *p = alloca(n);
	memset(p, n, n);
	mark(name);
	sink += p[n / 2];
}
__attribute__((noinline, noclone)) static void realigned(const char *name)
{
	char buf[64] __attribute__((aligned(64)));
	memset(buf, sink, sizeof buf);
	mark(name);
	sink += buf[sink & 63];
}
__attribute__((noinline, noclone)) static void realigned_alloca(int n, const char *name)
{
	char buf[64] __attribute__((aligned(64)));
	char *p = alloca(n);
	memset(p, sink, n);
	memset(buf, sink, sizeof buf);
	mark(name);
	sink += buf[sink & 63] + p[n - 1];
}
__attribute__((noinline, noclone)) static void many_args(long a, long b, long c, long d, long e, long f, long g, long h, const char *name)
{
	mark(name);
	sink += a + b + c + d + e + f + g + h;
}
static int compare(const void *a, const void *b)
{
	static int once;
	if (!once++)
		mark("qsort");
	return *(const int *)a - *(const int *)b;
}
static const char *volatile in_handler;
static void handler(int sig)
{
	(void)sig;
	plain(2, in_handler);
	sink++;
}
static ucontext_t back, other;
static void coroutine(void)
{
	plain(3, "coroutine");
	swapcontext(&other, &back);
}
static void *thread(void *p)
{
	plain(2, p);
	return NULL;
}
static void *sleeper(void *p)
{
	int old;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &old);
	for (;;)
		pause();
	return p;
}

int main(int argc, char **argv)
{
	void *warm[1];
	backtrace(warm, 1); // loads libgcc_s
	pthread_create(&victim, NULL, sleeper, NULL);
	mark("main");
	plain(5, "plain");
	with_alloca(100 + argc, "alloca");
	realigned("realigned");
	realigned_alloca(200 + argc, "realigned-alloca");
	many_args(1, 2, 3, 4, 5, 6, 7, 8, "args");
	int v[3] = {3, 1, 2};
	qsort(v, 3, sizeof *v, compare);
	signal(SIGUSR1, handler);
	in_handler = "signal";
	raise(SIGUSR1);
	struct sigaction sa = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
	stack_t ss = {.ss_sp = malloc(1 << 16), .ss_size = 1 << 16};
	sigaltstack(&ss, NULL);
	sigaction(SIGUSR2, &sa, NULL);
	in_handler = "altstack";
	raise(SIGUSR2);
	getcontext(&other);
	other.uc_stack.ss_size = 1 << 16;
	other.uc_stack.ss_sp = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	makecontext(&other, coroutine, 0);
	swapcontext(&back, &other);
	pthread_t t;
	pthread_create(&t, NULL, thread, "thread");
	pthread_join(t, NULL);
	if (argc > 1) {
		void *h = dlopen(argv[1], RTLD_NOW);
		void (*f)(void (*)(const char *), const char *) = dlsym(h, "through");
		f(mark, "dlopen");
		dlclose(h);
		h = dlopen(argv[1], RTLD_NOW);
		f = dlsym(h, "through");
		f(mark, "dlopen-again");
	}
	return 0;
}
