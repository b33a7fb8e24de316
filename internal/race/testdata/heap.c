// The life of heap blocks: accesses after free, free while another uses it, and a block that is handed out again.
#include "run.h"
#include <malloc.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long *block, *counted, *passed;
static int users;

static void *uses(void *arg)
{
	pthread_mutex_lock(&mutex);
	block[0]++;
	pthread_mutex_unlock(&mutex);
	return arg;
}

// What orders these two the detector does not see: a page that becomes readable.
static char *page;

static int readable(void)
{
	return syscall(SYS_rt_sigprocmask, 0, page, 0, 8); // EFAULT while it is not
}

static void *uses_first(void *arg)
{
	passed[1] += 3; // race free_and_use
	mprotect(page, 4096, PROT_READ);
	return arg;
}

static void *frees_late(void *arg)
{
	while (readable())
		sched_yield();
	free(passed); // race free_and_use
	return arg;
}

// That the allocator gives one thread what another freed orders nothing of the two: it came before, so threads that begin one after another had no races.
static char *given;
static volatile long beside;

static void *gives(void *arg)
{
	beside = 1; // race-mov beside
	free(given);
	unseen_done();
	return arg;
}

static void *is_given(void *arg)
{
	unseen_wait();
	char *p = malloc(20000); // mostly the same
	use(beside); // race-mov beside
	free(p);
	return arg;
}

static void *last_user(void *arg)
{
	use(counted[0]);
	if (__atomic_sub_fetch(&users, 1, __ATOMIC_ACQ_REL) == 0)
		free(counted);
	return arg;
}

static void *own(void *arg) // blocks pass from thread to thread by the allocator
{
	for (int i = 0; i < 20; i++) {
		long *p = malloc(64);
		p[3] = i;
		p = realloc(p, 6000);
		p[3]++;
		p[700] = i;
		free(p);
	}
	return arg;
}

static void *copies(void *arg)
{
	size_t n = 8;
	__asm__("" : "+r"(n));
	memcpy(block + 2, arg ? "abcdefgh" : "ijklmnop", n); // race memcpy
	return arg;
}

static void *copies_too(void *arg)
{
	size_t n = 7;
	__asm__("" : "+r"(n));
	memset(block + 2, 1, n); // race memcpy
	return arg;
}

int main(void)
{
	mallopt(M_ARENA_MAX, 1);
	block = calloc(4, sizeof *block);
	both(uses, uses);
	both(copies, copies_too);
	users = 2;
	counted = calloc(4, sizeof *counted);
	both(last_user, last_user);
	both(own, own);

	long *gone = malloc(3 * sizeof *gone);
	gone[1] = 1;
	long *at = gone;
	__asm__("" : "+r"(at));
	free(gone); // uaf read
	use(at[1]); // uaf read
	long *again = malloc(3 * sizeof *again);
	again[1] = 2;
	free(again);

	passed = malloc(24);
	page = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	both(frees_late, uses_first);

	given = malloc(20000);
	unseen(gives, is_given);
	return 0;
}
