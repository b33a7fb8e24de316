// What main gives to a thread at its start, and goes on writing: main's last access to it against the thread's first, which comes a while later. As long as a block became shared when the thread touched it, main's write was told to nobody.
// The argument is a block, small or large; a closure that holds a pointer to it, as std::thread and other languages' threads begin; or memory that main has mapped.
// Who reads waits a while first, so that the write is mostly earlier; if it is not, the race is found as well.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <threads.h>
#include <unistd.h>

enum { KINDS = 5, APART = 20000 };

struct job { long kind; char apart[APART]; long late[KINDS]; char also[APART]; }; // no page of what is used is shared with another's, or near one that is
struct closure { void *(*run)(void *); struct job *job; };

static long sum;

#define KIND(n) \
	static __attribute__((noinline)) void late##n(struct job *p, int write) { volatile long *at = &p->late[n]; if (write) *at = 1; else __atomic_fetch_add(&sum, *at == 1, __ATOMIC_RELAXED); }

KIND(0) // race-mov small
KIND(1) // race-mov large
KIND(2) // race-mov closure
KIND(3) // race-mov mapped
KIND(4) // race-mov thrd

static void (*const late[KINDS])(struct job *, int) = {late0, late1, late2, late3, late4};

static void *work(void *arg)
{
	usleep(20000);
	struct job *p = arg;
	late[p->kind](p, 0);
	return NULL;
}

static void *unpack(void *arg)
{
	struct closure *c = arg;
	return c->run(c->job);
}

static int work_c11(void *arg) { return work(arg) != NULL; }

int main(void)
{
	pthread_t t;
	thrd_t c11;
	struct job *p[KINDS];
	struct closure *c = malloc(sizeof *c);
	p[0] = malloc(sizeof *p[0]);
	p[1] = malloc(800000);
	p[2] = malloc(sizeof *p[2]);
	p[3] = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	p[4] = malloc(sizeof *p[4]);
	for (int i = 0; i < KINDS; i++) {
		p[i]->kind = i;
		p[i]->late[i] = 0;
	}
	*c = (struct closure){work, p[2]};
	for (int i = 0; i < KINDS; i++) {
		if ((i == KINDS - 1 ? thrd_create(&c11, work_c11, p[i]) != thrd_success : pthread_create(&t, NULL, i == 2 ? unpack : work, i == 2 ? (void *)c : p[i]) != 0))
			return 1;
		late[i](p[i], 1);
		/* One after the other: what else becomes shared is a pardon of all that main did. */
		if (i == KINDS - 1 ? thrd_join(c11, NULL) != thrd_success : pthread_join(t, NULL) != 0)
			return 1;
	}
	printf("%d\n", sum >= 0);
	return 0;
}
