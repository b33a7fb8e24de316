// Heap errors and right uses that resemble them, one a function. The line above a function states what ripstop guard must say of it: none, or the rule with the block's size, the offset of the first wrong byte from the block's beginning, a function
// in one of the stacks, and how the process ends, if not by exit(0). `missed` is an error that is known not to be seen.
#define _GNU_SOURCE
#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* The compiler does not know what comes out. */
static void *hide(void *p)
{
	__asm__ volatile("" : "+r"(p) : : "memory");
	return p;
}
__attribute__((noinline)) static char *make(size_t n) { return hide(malloc(n)); }
__attribute__((noinline)) static void drop(void *p)
{
	free(p);
	__asm__ volatile("" ::: "memory");
}
static void *in_thread(void *(*f)(void *), void *arg)
{
	pthread_t t;
	void *r;
	if (pthread_create(&t, NULL, f, arg) || pthread_join(t, &r))
		abort();
	return r;
}

// case off_by_one: heap-overflow size=10 first=10 frame=make
static void off_by_one(void)
{
	char *p = make(10);
	for (int i = 0; i <= 10; i++)
		p[i] = 'x';
	drop(p);
}

// case last_byte: none
static void last_byte(void)
{
	char *p = make(10);
	for (int i = 0; i < 10; i++)
		p[i] = 'x';
	drop(p);
}

// case terminator: heap-overflow size=16 first=16 frame=drop
static void terminator(void)
{
	char *p = make(16);
	strcpy(p, hide("0123456789abcdef"));
	drop(p);
}

// case copy_string: heap-overflow size=5 first=5 frame=make
static void copy_string(void)
{
	strcpy(make(5), hide("a string that is too long for it"));
}

// case print: heap-overflow size=8 first=8 frame=make
static void print(void)
{
	char *p = make(8);
	sprintf(p, "%s", (char *)hide("eight and more"));
	drop(p);
}

// case elements: heap-overflow size=40 first=40 frame=make
static void elements(void)
{
	int from[12] = {0};
	memcpy(make(40), hide(from), sizeof from);
}

// case set_too_much: heap-overflow size=100 first=100 frame=make
static void set_too_much(void)
{
	char *p = make(100);
	memset(hide(p), 'A', 110);
	drop(p);
}

// case zero: heap-overflow size=0 first=0 frame=make
static void zero(void) { *make(0) = 1; }

// case cleared: heap-overflow size=40 first=40
static void cleared(void)
{
	int *p = hide(calloc(10, sizeof *p));
	p[10] = 1;
	drop(p);
}

// case shrunk: heap-overflow size=30 first=35
static void shrunk(void)
{
	char *p = hide(realloc(make(40), 30));
	p[35] = 1;
	drop(p);
}

// case grown: heap-overflow size=30 first=30 frame=grown
static void grown(void)
{
	char *p = make(30);
	p[30] = 1;
	p = hide(realloc(p, 3000));
	memset(p, 1, 3000);
	drop(p);
}

// case grown_rightly: none
static void grown_rightly(void)
{
	char *p = NULL;
	for (size_t n = 1; n < 3000000; n += n / 3 + 1) {
		p = hide(realloc(p, n));
		memset(p, (int)n, n);
	}
	for (size_t n = 3000000; n > 1; n -= n / 3 + 1) {
		p = hide(realloc(p, n));
		memset(p, (int)n, n);
	}
	drop(p);
}

// case by_the_kernel: heap-overflow size=20 first=20
static void by_the_kernel(void)
{
	int fd[2];
	char *p = make(20);
	if (pipe(fd) || write(fd[1], "twenty-four bytes or so", 24) != 24 || read(fd[0], hide(p), 24) != 24)
		abort();
	drop(p);
}

// case aligned: heap-overflow size=100 first=100
static void aligned(void)
{
	void *p;
	if (posix_memalign(&p, 64, 100))
		abort();
	((char *)hide(p))[100] = 1;
	drop(p);
}

// case aligned_rightly: none
static void aligned_rightly(void)
{
	for (size_t align = 8; align <= 1 << 21; align *= 2)
		for (size_t n = 1; n < 100000; n = n * 7 + 1) {
			void *p;
			if (posix_memalign(&p, align, n) || (size_t)p % align)
				abort();
			memset(hide(p), 1, n);
			drop(p);
		}
	void *q = hide(aligned_alloc(4096, 8192)), *r = hide(valloc(100)), *s = hide(memalign(32, 10));
	memset(q, 1, 8192), memset(r, 1, 100), memset(s, 1, 10);
	drop(q), drop(r), drop(s);
}

// case appended: heap-overflow size=6 first=6
static void appended(void)
{
	char *p = hide(strdup("hello"));
	strcat(p, hide("!"));
	drop(p);
}

// case usable: none
static void usable(void)
{
	for (size_t n = 0; n < 5000; n += 13) {
		char *p = make(n);
		memset(p, 1, malloc_usable_size(p));
		drop(p);
	}
}

// case huge: heap-overflow size=2000000 first=2000000
static void huge(void)
{
	char *p = make(2000000);
	p[2000000] = 1;
	drop(p);
}

static void *write_behind(void *p)
{
	((char *)hide(p))[24] = 1;
	free(p);
	return NULL;
}
// case other_thread: heap-overflow size=24 first=24 frame=write_behind
static void other_thread(void) { in_thread(write_behind, make(24)); }

// case at_exit_only: heap-overflow size=24 first=24 frame=make
static void at_exit_only(void) { make(24)[24] = 1; }

// case at_raw_exit: heap-overflow size=24 first=24 frame=make
static void at_raw_exit(void)
{
	make(24)[24] = 1;
	if (puts("ok") < 0 || fflush(stdout))
		abort();
	_exit(0);
}

// case at_exec: heap-overflow size=24 first=24 frame=make
static void at_exec(void)
{
	make(24)[24] = 1;
	execlp("echo", "echo", "ok", (char *)NULL);
}

// case at_abort: heap-overflow size=24 first=24 frame=make and=crash ends=SIGABRT
static void at_abort(void)
{
	make(24)[24] = 1;
	abort();
}

// case asserts: crash frame=asserts ends=SIGABRT
static void asserts(void) { assert(!hide((void *)1)); }

// case null_pointer: crash frame=null_pointer ends=SIGSEGV
static void null_pointer(void) { *(volatile int *)hide(NULL) = 1; }

static void *divides(void *by) { return (void *)(100 / (size_t)by); }
// case division: crash frame=divides ends=SIGFPE
static void division(void) { in_thread(divides, hide(NULL)); }

// case trap: crash frame=trap ends=SIGILL
static void trap(void) { __asm__ volatile("ud2"); }

// case freed_pointer: crash frame=freed_pointer ends=SIGSEGV
static void freed_pointer(void)
{
	struct list { struct list *next; int value; } *p = hide(make(sizeof *p));
	p->next = p;
	drop(p);
	p->next->value = 1;
}

/* Natively the same: the action is the default for who looks, and for who sets another. */
static sigjmp_buf back;
static void jump(int sig) { siglongjmp(back, sig); }
// case handles: none
static void handles(void)
{
	struct sigaction old, new = {.sa_handler = jump};
	static const int sigs[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
	for (int i = 0; i < 5; i++) {
		if (sigaction(sigs[i], NULL, &old) || old.sa_handler != SIG_DFL || old.sa_flags || signal(sigs[i], jump) != SIG_DFL || sigaction(sigs[i], &new, &old) || old.sa_handler != jump)
			exit(3);
		if (sigsetjmp(back, 1) == 0)
			raise(sigs[i]);
	}
	if (sigsetjmp(back, 1) == 0)
		*(volatile int *)hide(NULL) = 1;
}

// case killed_by_other: none ends=SIGSEGV
static void killed_by_other(void)
{
	pid_t pid = getpid();
	if (fork() == 0) {
		kill(pid, SIGSEGV);
		_exit(0);
	}
	for (;;)
		pause();
}

// case in_child: heap-overflow size=24 first=24 frame=make
static void in_child(void)
{
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		make(24)[24] = 1;
		_exit(0);
	}
	waitpid(pid, &status, 0);
}

// case twice: heap-overflow size=10 first=10 frame=make
static void twice(void)
{
	for (int i = 0; i < 100; i++) {
		char *p = make(10);
		p[10] = 1;
		drop(p);
	}
}

// case before: heap-underflow size=100 frame=make
static void before(void)
{
	char *p[64];
	for (int i = 0; i < 64; i++)
		p[i] = make(100);
	p[40][-1] = 1;
}

// case freed: use-after-free-write size=40 first=8 frame=drop
static void freed(void)
{
	long *p = hide(make(40));
	drop(p);
	p[1] = 1;
}

struct item { int id; char name[20]; struct item *next; };
// case freed_array: use-after-free-write size=320 first=64 frame=drop
static void freed_array(void)
{
	struct item *p = hide(make(10 * sizeof *p));
	drop(p);
	p[2].id = 7;
}

// case freed_far: missed
static void freed_far(void)
{
	char *p = make(1000);
	drop(p);
	p[500] = 1;
}

static void *freer(void *p)
{
	drop(p);
	return NULL;
}
// case freed_by_other: use-after-free-write size=48 first=0 frame=freer
static void freed_by_other(void)
{
	char *p = make(48);
	in_thread(freer, p);
	p[0] = 1;
}

// case freed_and_reused: use-after-free-write size=40 first=0 frame=drop
static void freed_and_reused(void)
{
	char *p = make(40);
	drop(p);
	p[0] = 1;
	for (int i = 0; i < 40000; i++)
		drop(make(40)); /* until quarantine has let it go */
}

// case freed_rightly: none
static void freed_rightly(void)
{
	char *p = make(40);
	p[0] = 1;
	drop(p);
	for (int i = 0; i < 40000; i++) {
		p = make((size_t)(i % 700));
		memset(p, i, (size_t)(i % 700));
		drop(p);
	}
}

// case stride: missed
static void stride(void)
{
	int *p = hide(make(64 * sizeof *p));
	p[64 + 250] = 1;
	drop(p);
}

// case twice_freed: double-free and=crash ends=SIGABRT
static void twice_freed(void)
{
	char *p = make(40);
	drop(p);
	drop(p);
}

// case inside_freed: invalid-free and=crash ends=SIGABRT
static void inside_freed(void) { drop(make(100) + 48); }

/* --- right programs in which much goes on when the heap is looked at */

enum { SHARED = 64 };
static void *shared[SHARED];
static void *churn(void *arg)
{
	unsigned seed = (unsigned)(size_t)arg;
	for (;;) {
		size_t n = rand_r(&seed) % 100 ? rand_r(&seed) % 600 : rand_r(&seed) % 300000;
		char *p = malloc(n);
		memset(p, 1, n);
		p = __atomic_exchange_n(&shared[rand_r(&seed) % SHARED], p, __ATOMIC_ACQ_REL);
		if (p && seed & 64) {
			p = realloc(p, n = rand_r(&seed) % 900);
			if (p)
				memset(p, 2, n);
		}
		free(p);
	}
	return NULL;
}

static void churners(int n)
{
	for (int i = 0; i < n; i++) {
		pthread_t t;
		if (pthread_create(&t, NULL, churn, (void *)(size_t)(i + 1)))
			abort();
		pthread_detach(t);
	}
}

// case exit_amid: none
static void exit_amid(void)
{
	churners(4);
	usleep(20000);
}

// case fork_amid: none
static void fork_amid(void)
{
	churners(4);
	for (int i = 0; i < 20; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			for (int k = 0; k < 100; k++)
				free(malloc((size_t)k * 10));
			_exit(0);
		}
		waitpid(pid, NULL, 0);
	}
}

static void *some(void *arg)
{
	char **list = arg;
	for (int i = 0; i < 1000; i++)
		list[i] = strdup("some text that is long enough");
	return NULL;
}
// case threads_come_and_go: none
static void threads_come_and_go(void)
{
	static char *list[1000];
	for (int i = 0; i < 20; i++) {
		in_thread(some, list);
		for (int k = 0; k < 1000; k++)
			free(list[k]);
	}
}

static void allocates(int sig)
{
	(void)sig;
	free(malloc(100)); /* wrong in general, and yet it is done */
}
// case in_handler: none
static void in_handler(void)
{
	signal(SIGUSR1, allocates);
	for (int i = 0; i < 1000; i++) {
		char *p = make((size_t)i);
		raise(SIGUSR1);
		memset(p, 1, (size_t)i);
		drop(p);
	}
}

// case by_libc: none
static void by_libc(void)
{
	char *line = NULL;
	size_t n = 0;
	FILE *f = fopen("/proc/self/maps", "r");
	while (f && getline(&line, &n, f) > 0)
		;
	free(line);
	if (f)
		fclose(f);
	char *s = NULL;
	if (asprintf(&s, "%s and %d", "text", 7) < 0)
		abort();
	free(s);
	FILE *m = open_memstream(&s, &n);
	for (int i = 0; i < 10000; i++)
		fprintf(m, "%d,", i);
	fclose(m);
	free(s);
	setenv("A_VARIABLE", "some value", 1);
	qsort(hide(make(4000)), 1000, 4, (int (*)(const void *, const void *))strcmp);
	dlclose(dlopen("libm.so.6", RTLD_NOW));
}

static const struct { const char *name; void (*f)(void); } cases[] = {
#define C(f) {#f, f}
	C(off_by_one), C(last_byte), C(terminator), C(copy_string), C(print), C(elements), C(set_too_much), C(zero), C(cleared), C(shrunk), C(grown), C(grown_rightly), C(by_the_kernel), C(aligned),
	C(aligned_rightly), C(appended), C(usable), C(huge), C(other_thread), C(at_exit_only), C(at_raw_exit), C(at_exec), C(at_abort), C(asserts), C(null_pointer), C(division), C(trap), C(freed_pointer), C(handles), C(killed_by_other), C(in_child), C(twice), C(before), C(freed), C(freed_array), C(freed_far),
	C(freed_by_other), C(freed_and_reused), C(freed_rightly), C(stride), C(twice_freed), C(inside_freed), C(exit_amid), C(fork_amid), C(threads_come_and_go), C(in_handler), C(by_libc)};

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (size_t i = 0; argc > 1 && i < sizeof cases / sizeof *cases; i++)
		if (strcmp(cases[i].name, argv[1]) == 0) {
			cases[i].f();
			puts("ok");
			return 0;
		}
	return 2;
}
