// Accesses to frames whose address no other thread is told are not looked at, until another thread comes upon the stack. Each race here is with such a frame, or with one that is none.
#include "../run.h"
#include <semaphore.h>
#include <ucontext.h>

enum { MANY = 16 };
static int *volatile place;
static volatile int seed = 3, sum, sink;
static sem_t there;

// leave tells everybody where its variable is, and returns.
static __attribute__((noinline)) void leave(void)
{
	int gone[MANY];
	for (int i = 0; i < MANY; i++)
		gone[i] = seed;
	place = &gone[seed];
	sum += gone[seed + 1];
}

// keeps has a frame of its own, which lies where leave's was.
static __attribute__((noinline)) int keeps(int n)
{
	volatile int own[MANY];
	int s = 0;
	for (int i = 0; i < MANY; i++)
		own[i] = n + i; // race-mov dangling
	for (int i = 0; i < 4 * MANY; i++)
		s += own[(i * n) & (MANY - 1)];
	return s;
}

static __attribute__((noinline)) int down(int n)
{
	volatile int own = n;
	return n ? own + down(n - 1) : own;
}

static void *returns(void *arg)
{
	leave();
	sem_post(&there);
	unseen_wait();
	sum += keeps(seed);
	return arg;
}

static void *holds_on(void *arg)
{
	sem_wait(&there);
	sink = *place; // race-mov dangling
	unseen_done();
	return arg;
}

// computes finds the address by a sum, and tells it.
static __attribute__((noinline)) void computes(void)
{
	volatile int a[MANY], *p = a;
	for (int i = 0; i < MANY; i++)
		a[i] = i;
	p += seed;
	place = (int *)p;
	sem_post(&there);
	unseen_wait();
	a[seed] = 1; // race-mov computed
	sum += a[seed + 1];
}

static void *computed(void *arg)
{
	computes();
	return arg;
}

static void *takes(void *arg)
{
	sem_wait(&there);
	sink = *place + 1; // race-mov computed
	unseen_done();
	return arg;
}

// fields tells where a part of its variable is: another part is told of as well.
struct pair { int first, second; };
static struct pair *volatile pair;

static __attribute__((noinline)) void fields(void)
{
	volatile struct pair two = {seed, seed};
	pair = (struct pair *)&two;
	sem_post(&there);
	unseen_wait();
	two.second = 5; // race-mov part
	sum += two.first;
}

static void *parts(void *arg)
{
	fields();
	return arg;
}

static void *reads_part(void *arg)
{
	sem_wait(&there);
	sink = pair->second; // race-mov part
	unseen_done();
	return arg;
}

// What follows is clean. Above what others know of a stack there may be frames of its own, and below.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *adds(void *arg)
{
	for (int i = 0; i < 100; i++) {
		pthread_mutex_lock(&lock);
		*(int *)arg += keeps(i) & 1;
		pthread_mutex_unlock(&lock);
		down(20);
	}
	return 0;
}

static __attribute__((noinline)) void shares(void)
{
	int total = 0;
	pthread_t t[2];
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], 0, adds, &total);
	adds(&total);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], 0);
	sum += total;
	down(50);
}

// A coroutine that one thread begins and another goes on with, under a lock.
static ucontext_t back, routine;
static char stack[1 << 16];

static void runs(void)
{
	for (;;) {
		sum += keeps(seed) + down(10);
		swapcontext(&routine, &back);
	}
}

static void *resumes(void *arg)
{
	for (int i = 0; i < 20; i++) {
		pthread_mutex_lock(&lock);
		swapcontext(&back, &routine);
		pthread_mutex_unlock(&lock);
	}
	return arg;
}

int main(void)
{
	sem_init(&there, 0, 0);
	unseen(returns, holds_on);
	unseen(computed, takes);
	unseen(parts, reads_part);
	shares();
	getcontext(&routine);
	routine.uc_stack.ss_sp = stack;
	routine.uc_stack.ss_size = sizeof stack;
	makecontext(&routine, runs, 0);
	both(resumes, resumes);
	puts("done");
	return 0;
}
