// Takes one lock again and again, at the same depth of the stack by different paths and through frames of changing size, and prints for each time
// what backtrace() says.
#include <alloca.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static volatile int sink;

static __attribute__((noinline)) void mark(void)
{
	void *pc[40];
	int n = backtrace(pc, 40);
	for (int i = 1; i < n; i++)
		printf("%lx ", (unsigned long)pc[i]);
	puts("");
	pthread_mutex_lock(&lock);
	sink++;
	pthread_mutex_unlock(&lock);
}

#define PATH(name) static __attribute__((noinline)) void name(void) { mark(); sink++; }
PATH(p0) PATH(p1) PATH(p2) PATH(p3) PATH(p4) PATH(p5) PATH(p6)
static void (*volatile path[])(void) = {p0, p1, p2, p3, p4, p5, p6};

/* Its frame's size is known to its rbp alone. */
static __attribute__((noinline)) void wide(int bytes, int which)
{
	char *p = alloca(bytes);
	memset(p, which, bytes);
	path[which]();
	sink += p[0];
}

/* The same sizes above and below the lock's frames, but in other frames: the same rsp by another way. */
static __attribute__((noinline)) void wider(int bytes, int more, int which)
{
	char *p = alloca(bytes);
	memset(p, which, bytes);
	wide(more, which);
	sink += p[0];
}

static void *run(void *arg)
{
	for (int i = 0; i < 3000; i++) {
		path[i % 7]();
		wide(16 * (1 + i % 5), i % 3);
		wider(16 * (1 + i % 5), 16 * (5 - i % 5), i % 2);
	}
	return arg;
}

int main(void)
{
	void *pc[2];
	backtrace(pc, 2); /* loads libgcc, which takes locks of its own */
	pthread_t t;
	pthread_create(&t, NULL, run, NULL);
	pthread_join(t, NULL);
	return 0;
}
