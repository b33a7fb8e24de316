// Shared by the programs here.
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <pthread.h>
#include <stdio.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// both runs two functions, each in a thread of its own, and joins them.
static inline void both(void *(*one)(void *), void *(*two)(void *))
{
	pthread_t t[2];
	pthread_create(&t[0], 0, one, 0);
	pthread_create(&t[1], 0, two, 0);
	pthread_join(t[0], 0);
	pthread_join(t[1], 0);
}

static inline void unseen_begin(void);
// unseen is both, of functions that unseen_done and unseen_wait put in order.
static inline void unseen(void *(*first)(void *), void *(*second)(void *))
{
	unseen_begin();
	both(first, second);
}

// use reads a value.
#define use(x) __asm__ volatile("" : : "r"(x))

// What orders two threads without a detector's seeing it: a page that becomes readable. unseen_begin, then unseen_done in one thread and unseen_wait in the other.
static inline char **unseen_page(void)
{
	static char *page;
	return &page;
}
static inline void unseen_begin(void)
{
	char **page = unseen_page();
	if (!*page)
		*page = (char *)mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(*page, 4096, PROT_NONE);
}
static inline void unseen_done(void) { mprotect(*unseen_page(), 4096, PROT_READ); }
static inline void unseen_wait(void)
{
	while (syscall(SYS_rt_sigprocmask, 0, *unseen_page(), 0, 8)) // EFAULT while it is not
		sched_yield();
}
