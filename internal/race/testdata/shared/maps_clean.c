// Memory that the program maps for itself, which its threads share rightly or have for themselves, and whose every call does what it does natively: parts that are unmapped, across neighbours, discarded, moved, grown, shrunk,
// guarded, mapped over, in reserve; stacks in it; and processes, whose memory is their own.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 64, BYTES = PAGES * PAGE, THREADS = 4, ROUNDS = 20, RW = PROT_READ | PROT_WRITE, ANON = MAP_PRIVATE | MAP_ANONYMOUS };

#define CHECK(x) \
	do { \
		if (!(x)) { \
			printf("line %d: %s, errno %d\n", __LINE__, #x, errno); \
			exit(1); \
		} \
	} while (0)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile char *shared;
static sigjmp_buf back;
static siginfo_t seen;

static char *map(void *at, size_t n, int prot, int flags)
{
	char *p = mmap(at, n, prot, flags, -1, 0);
	CHECK(p != MAP_FAILED);
	return p;
}

static unsigned long sum_of(const volatile char *p, size_t n)
{
	unsigned long sum = 0;
	for (size_t i = 0; i < n; i++)
		sum = sum * 31 + (unsigned char)p[i];
	return sum;
}

static void fill(volatile char *p, size_t n, int seed)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (char)(seed + (int)(i / PAGE) + (int)i);
}

static bool zero(const volatile char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i])
			return false;
	return true;
}

static void on_fault(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)context;
	seen = *info;
	siglongjmp(back, 1);
}

// The code that an access faults with, 0 if it does not.
static int faults(volatile char *p, bool write)
{
	memset(&seen, 0, sizeof seen);
	if (sigsetjmp(back, 1) == 0) {
		if (write)
			*p = 1;
		else
			(void)*p;
		return 0;
	}
	CHECK(seen.si_addr == p);
	return seen.si_code;
}

// Where there is a hole another thread's mapping may come: ALONE there is none.
enum { ALONE = 100 };

static void parts(int me)
{
	char *p = map(NULL, BYTES, RW, ANON);
	fill(p, BYTES, me);
	unsigned long head = sum_of(p, 10 * PAGE), tail = sum_of(p + 20 * PAGE, BYTES - 20 * PAGE);
	CHECK(munmap(p + 10 * PAGE, 10 * PAGE) == 0);
	CHECK(sum_of(p, 10 * PAGE) == head && sum_of(p + 20 * PAGE, BYTES - 20 * PAGE) == tail);
	if (me >= ALONE)
		CHECK(munmap(p, BYTES) == 0);
	else
		CHECK(munmap(p, 10 * PAGE) == 0 && munmap(p + 20 * PAGE, BYTES - 20 * PAGE) == 0);
	// neighbours, by one call
	p = map(NULL, BYTES, PROT_NONE, ANON | MAP_NORESERVE);
	for (int i = 0; i < PAGES; i += 4)
		CHECK(map(p + i * PAGE, 4 * PAGE, RW, ANON | MAP_FIXED) == p + i * PAGE);
	fill(p, BYTES, me);
	CHECK(munmap(p + 2 * PAGE, 41 * PAGE) == 0);
	fill(p, 2 * PAGE, 1);
	fill(p + 43 * PAGE, BYTES - 43 * PAGE, 1);
	CHECK(munmap(p, 2 * PAGE) == 0 && munmap(p + 43 * PAGE, BYTES - 43 * PAGE) == 0);
	CHECK(munmap(p, 0) == -1 && errno == EINVAL && munmap(p + 1, PAGE) == -1 && errno == EINVAL);
}

static void discard(int me)
{
	char *p = map(NULL, BYTES, RW, ANON);
	fill(p, BYTES, me);
	unsigned long rest = sum_of(p + 7 * PAGE, BYTES - 7 * PAGE);
	CHECK(madvise(p + 3 * PAGE, 4 * PAGE, MADV_DONTNEED) == 0);
	CHECK(zero(p + 3 * PAGE, 4 * PAGE) && !zero(p, 3 * PAGE) && sum_of(p + 7 * PAGE, BYTES - 7 * PAGE) == rest);
	CHECK(madvise(p + 7 * PAGE, PAGE, MADV_REMOVE) == -1 && errno == EINVAL);
	CHECK(madvise(p + 8 * PAGE, PAGE, MADV_FREE) == 0);
	p[8 * PAGE] = 9;
	CHECK(p[8 * PAGE] == 9);
	if (me >= ALONE) {
		CHECK(munmap(p + 10 * PAGE, PAGE) == 0);
		CHECK(madvise(p + 9 * PAGE, 3 * PAGE, MADV_DONTNEED) == -1 && errno == ENOMEM && zero(p + 11 * PAGE, PAGE));
		CHECK(map(p + 10 * PAGE, PAGE, RW, ANON | MAP_FIXED) == p + 10 * PAGE);
	}
	(void)madvise(p, BYTES, MADV_HUGEPAGE);
	CHECK(madvise(p, PAGE, MADV_WIPEONFORK) == 0 && madvise(p, PAGE, MADV_KEEPONFORK) == 0);
	CHECK(zero(p + 3 * PAGE, PAGE) && !zero(p, PAGE));
	munmap(p, BYTES);
}

static void moves(int me)
{
	char *p = map(NULL, 2 * BYTES, PROT_NONE, ANON | MAP_NORESERVE);
	CHECK(map(p, BYTES, RW, ANON | MAP_FIXED) == p);
	fill(p, BYTES, me);
	unsigned long all = sum_of(p, BYTES);
	CHECK(mremap(p, BYTES, 2 * BYTES, 0) == MAP_FAILED && errno == ENOMEM);
	char *q = mremap(p, BYTES, 2 * BYTES, MREMAP_MAYMOVE);
	CHECK(q != MAP_FAILED && sum_of(q, BYTES) == all && zero(q + BYTES, BYTES));
	fill(q + BYTES, BYTES, me);
	CHECK(sum_of(q + BYTES, BYTES) == all);
	munmap(p + BYTES, BYTES);
	// across what were two
	char *to = map(NULL, 4 * BYTES, PROT_NONE, ANON | MAP_NORESERVE);
	CHECK(map(to, 4 * BYTES, RW, ANON | MAP_FIXED) == to);
	fill(to, 2 * BYTES, 3);
	CHECK(mremap(q, 2 * BYTES, 2 * BYTES, MREMAP_MAYMOVE | MREMAP_FIXED, to) == to);
	CHECK(sum_of(to, BYTES) == all && sum_of(to + BYTES, BYTES) == all && zero(to + 2 * BYTES, BYTES));
	if (me >= ALONE) {
		CHECK(mremap(to, 2 * BYTES, BYTES, 0) == to && sum_of(to, BYTES) == all);
		CHECK(mremap(to, BYTES, BYTES + 3 * PAGE, 0) == to && sum_of(to, BYTES) == all && zero(to + BYTES, 3 * PAGE)); // in place: there is room
	}
	to[BYTES + PAGE] = 5;
	CHECK(mremap(to, 0, BYTES, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
#ifdef MREMAP_DONTUNMAP
	q = mremap(to, BYTES, BYTES, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
	CHECK(q != MAP_FAILED && sum_of(q, BYTES) == all && zero(to, BYTES) && to[BYTES + PAGE] == 5);
	fill(to, BYTES, 1);
	CHECK(sum_of(q, BYTES) == all);
	munmap(q, BYTES);
#endif
	munmap(to, 4 * BYTES);
}

static void over(int me)
{
	char *p = map(NULL, BYTES, RW, ANON);
	fill(p, BYTES, me);
	CHECK(mmap(p, PAGE, RW, ANON | MAP_FIXED_NOREPLACE, -1, 0) == MAP_FAILED && errno == EEXIST);
	CHECK(mmap(p, PAGE, RW, MAP_PRIVATE | MAP_FIXED, -1, 0) == MAP_FAILED && errno == EBADF && p[1] == (char)(me + 1));
	CHECK(map(p + 5 * PAGE, 2 * PAGE, RW, ANON | MAP_FIXED) == p + 5 * PAGE);
	CHECK(zero(p + 5 * PAGE, 2 * PAGE) && !zero(p + 4 * PAGE, PAGE) && !zero(p + 7 * PAGE, PAGE));
	p[5 * PAGE] = 1;
	munmap(p, BYTES);
}

// By main alone, as is all that faults.
static void guards(void)
{
	char *p = map(NULL, BYTES, RW, ANON);
	fill(p, BYTES, 7);
	unsigned long all = sum_of(p, BYTES);
	CHECK(mprotect(p + 4 * PAGE, PAGE, PROT_NONE) == 0);
	printf("guard: %d %d %d\n", faults(p + 4 * PAGE + 3, false), faults(p + 4 * PAGE, true), faults(p + 3 * PAGE, true));
	CHECK(mprotect(p + 4 * PAGE, PAGE, RW) == 0);
	p[3 * PAGE] = (char)(7 + 3);
	CHECK(sum_of(p, BYTES) == all);
	CHECK(mprotect(p, BYTES, PROT_READ) == 0 && sum_of(p, BYTES) == all);
	printf("read only: %d %d\n", faults(p + 9, true), faults(p + 9, false));
	char *q = mremap(p, BYTES, 2 * BYTES, MREMAP_MAYMOVE);
	CHECK(q != MAP_FAILED);
	printf("moved: %d %d %d\n", faults(q + 9, true), faults(q + BYTES, true), faults(p, false) == SEGV_MAPERR || q == p);
	CHECK(sum_of(q, BYTES) == all && zero(q + BYTES, BYTES));
	munmap(q, 2 * BYTES);
	p = map(NULL, PAGE, RW, ANON);
	memcpy(p, "\xb8\x2a\0\0\0\xc3", 6); // mov $42, %eax; ret
	CHECK(mprotect(p, PAGE, PROT_READ | PROT_EXEC) == 0);
	int (*code)(void);
	memcpy(&code, &p, sizeof code);
	printf("code: %d\n", code());
	munmap(p, PAGE);
	printf("unmapped: %d\n", faults(p, true));
	// what lies in reserve
	size_t huge = 1ul << 42;
	p = map(NULL, huge, PROT_NONE, ANON | MAP_NORESERVE);
	CHECK(mprotect(p + (huge >> 1), BYTES, RW) == 0);
	fill(p + (huge >> 1), BYTES, 7);
	CHECK(sum_of(p + (huge >> 1), BYTES) == all);
	CHECK(map(p, BYTES, RW, ANON | MAP_FIXED) == p);
	fill(p, BYTES, 7);
	CHECK(sum_of(p, BYTES) == all && munmap(p, huge) == 0);
	p = map(NULL, 3ul << 30, RW, ANON | MAP_NORESERVE);
	p[2ul << 30] = 1;
	CHECK(zero(p, BYTES) && munmap(p, 3ul << 30) == 0);
	p = map(NULL, BYTES, RW, ANON | MAP_STACK);
	fill(p, BYTES, 1);
	CHECK(mlock(p, PAGE) == 0 && munmap(p, BYTES) == 0);
	p = map(NULL, BYTES, RW, ANON);
	CHECK(mlock(p, PAGE) == 0);
	p[0] = 1;
	CHECK(madvise(p, PAGE, MADV_DONTNEED) == -1 && errno == EINVAL && p[0] == 1);
	munmap(p, BYTES);
}

static ucontext_t caller, other;
static void coroutine(void)
{
	volatile char deep[8 * PAGE];
	fill(deep, sizeof deep, 1);
	swapcontext(&other, &caller);
	fill(deep, sizeof deep, 2);
}

static int cloned(void *arg)
{
	volatile char deep[2 * PAGE];
	fill(deep, sizeof deep, 1);
	return *(char *)arg;
}

static void *on_own_stack(void *arg)
{
	volatile char deep[8 * PAGE];
	fill(deep, sizeof deep, 1);
	return (void *)sum_of(deep, (size_t)(intptr_t)arg);
}

static void stacks(void)
{
	char *p = map(NULL, BYTES, RW, ANON), *q = map(NULL, BYTES, RW, ANON), *r = map(NULL, BYTES, RW, ANON);
	getcontext(&other);
	other.uc_stack.ss_sp = p;
	other.uc_stack.ss_size = BYTES;
	other.uc_link = &caller;
	makecontext(&other, coroutine, 0);
	swapcontext(&caller, &other);
	swapcontext(&caller, &other);
	pthread_attr_t attr;
	pthread_t t;
	void *result;
	pthread_attr_init(&attr);
	CHECK(pthread_attr_setstack(&attr, q, BYTES) == 0);
	CHECK(pthread_create(&t, &attr, on_own_stack, (void *)100) == 0 && pthread_join(t, &result) == 0);
	int status, pid = clone(cloned, r + BYTES, CLONE_VM | CLONE_VFORK | SIGCHLD, (char *)"\7");
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
	printf("stacks: %lx %d\n", (unsigned long)result, WEXITSTATUS(status));
	munmap(p, BYTES);
	munmap(q, BYTES);
	munmap(r, BYTES);
}

static void children(void)
{
	int status;
	char *p = map(NULL, BYTES, RW, ANON);
	fill(p, BYTES, 3);
	CHECK(mprotect(p + 5 * PAGE, PAGE, PROT_READ) == 0);
	CHECK(munmap(p + 7 * PAGE, PAGE) == 0);
	unsigned long sum = sum_of(p, 7 * PAGE), mine = sum_of(shared, BYTES);
	pid_t pid = fork();
	if (pid == 0) {
		CHECK(sum_of(p, 7 * PAGE) == sum && sum_of(shared, BYTES) == mine);
		CHECK(faults(p + 5 * PAGE, true) == SEGV_ACCERR && faults(p + 7 * PAGE, false) == SEGV_MAPERR);
		memset(p, 9, 3 * PAGE);
		shared[0]++;
		CHECK(madvise(p, PAGE, MADV_DONTNEED) == 0 && zero(p, PAGE));
		char *q = mremap(p + 8 * PAGE, 4 * PAGE, 200 * PAGE, MREMAP_MAYMOVE);
		CHECK(q != MAP_FAILED && zero(q + 4 * PAGE, 196 * PAGE) && q[1] == (char)(3 + 8 + 1));
		munmap(p, 2 * PAGE);
		char *r = map(p, 2 * PAGE, RW, ANON | MAP_FIXED);
		CHECK(zero(r, 2 * PAGE));
		pid = fork();
		if (pid == 0) {
			CHECK(zero(r, 2 * PAGE) && p[2 * PAGE] == 9);
			memset(r, 1, PAGE);
			_exit(5);
		}
		CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 5 && zero(r, 2 * PAGE));
		moves(ALONE);
		parts(ALONE);
		_exit(3);
	}
	CHECK(pid > 0 && waitpid(pid, &status, 0) == pid);
	printf("child: %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
	CHECK(sum_of(p, 7 * PAGE) == sum && sum_of(shared, BYTES) == mine);
	munmap(p, BYTES);
}

static void *worker(void *arg)
{
	int me = (int)(intptr_t)arg;
	char *own = map(NULL, BYTES, RW, ANON);
	for (int i = 0; i < ROUNDS; i++) {
		own[i * PAGE] = (char)me;
		pthread_mutex_lock(&lock);
		for (int k = 0; k < PAGES; k++)
			shared[k * PAGE + 5]++;
		if (i == ROUNDS / 2 && me == 1) { // while others wait for it
			CHECK(madvise((void *)(uintptr_t)(shared + 60 * PAGE), PAGE, MADV_DONTNEED) == 0 && zero(shared + 60 * PAGE, PAGE));
			char *to = mremap((void *)(uintptr_t)shared, BYTES, 3 * BYTES, MREMAP_MAYMOVE);
			CHECK(to != MAP_FAILED && zero(to + BYTES, BYTES));
			shared = to;
			shared[60 * PAGE + 5] = shared[5];
		}
		pthread_mutex_unlock(&lock);
	}
	parts(me);
	discard(me);
	moves(me);
	over(me);
	return own;
}

int main(void)
{
	pthread_t t[THREADS];
	struct sigaction act = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
	sigaction(SIGSEGV, &act, NULL);
	shared = map(NULL, BYTES, RW, ANON);
	fill(shared, BYTES, 0);
	guards();
	for (int i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, worker, (void *)(intptr_t)(i + 1));
	for (int i = 0; i < THREADS; i++) {
		void *own;
		pthread_join(t[i], &own);
		printf("%lx\n", sum_of(own, BYTES));
		own = mremap(own, BYTES, 3 * BYTES, MREMAP_MAYMOVE);
		printf("%lx\n", sum_of(own, 3 * BYTES));
		munmap(own, 3 * BYTES);
	}
	for (int k = 0; k < PAGES; k++)
		CHECK(shared[k * PAGE + 5] == (char)(k + 5 + THREADS * ROUNDS) || k == 60);
	printf("%lx\n", sum_of(shared, 60 * PAGE));
	guards();
	stacks();
	children();
	parts(ALONE);
	discard(ALONE);
	moves(ALONE);
	over(4);
	puts("done");
	return 0;
}
