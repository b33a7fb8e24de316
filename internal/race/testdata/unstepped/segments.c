// A program that uses GS itself, by a system call (bases.c: by an instruction; keys.c: protection keys): what it has there is its own, under whichever way of looking. Each thread reaches a block of its own, which no address in the
// instruction says; what two threads have in common that way is not told (missed).
#include "../run.h"
#include <asm/prctl.h>
#include <signal.h>
#include <stdint.h>

#define MUST(x) do { if (!(x)) abort(); } while (0)
struct block { long at_zero, counted, before; };
static long set_base(void *to) { return syscall(SYS_arch_prctl, ARCH_SET_GS, to); }
static void *base(void)
{
	uintptr_t now;
	MUST(syscall(SYS_arch_prctl, ARCH_GET_GS, &now) == 0);
	return (void *)now;
}
#define COUNT() __asm__ volatile("incq %%gs:8" : : : "memory")

// Each its own; a handler, calls and locks in between leave it alone.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long together;
static void handles(int sig)
{
	(void)sig;
	COUNT();
}
static void *has_its_own(void *p)
{
	struct block own = {0};
	MUST(set_base(&own) == 0);
	for (int i = 0; i < 100; i++) {
		COUNT();
		pthread_mutex_lock(&mutex);
		together++;
		pthread_mutex_unlock(&mutex);
		free(malloc(100 + (size_t)i));
		if (i % 10 == 0)
			pthread_kill(pthread_self(), SIGUSR1);
		sched_yield();
	}
	MUST(own.counted == 110 && base() == &own);
	MUST(set_base(0) == 0);
	return p;
}

// A new thread has its maker's.
static void *inherits(void *p)
{
	MUST(base() == p);
	COUNT();
	return p;
}
static void hands_on(void)
{
	static struct block common;
	pthread_t t;
	MUST(set_base(&common) == 0);
	COUNT();
	pthread_create(&t, 0, inherits, &common);
	pthread_join(t, 0);
	COUNT();
	MUST(common.counted == 3 && set_base(0) == 0);
}

// Two who have one block.
static struct block both_have;
long beside;
static void *counts_there(void *p)
{
	MUST(set_base(&both_have) == 0);
	COUNT(); // missed by_segment
	MUST(set_base(0) == 0);
	beside++; // race beside
	return p;
}

int main(void)
{
	signal(SIGUSR1, handles);
	both(has_its_own, has_its_own);
	hands_on();
	both(counts_there, counts_there);
	puts("done");
	return 0;
}
