// Many threads, and threads that leave where they were: by siglongjmp out of a handler, by swapcontext, into a child that has their memory (vfork), into another program (exec).
#include "../run.h"
#include <setjmp.h>
#include <signal.h>
#include <sys/wait.h>
#include <ucontext.h>

// --- a hundred threads -------------------------------------------------------------------------------------------------------------------

enum { MANY = 100 };
static long hundred, locked_hundred, own[MANY];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t all_there;
static void *is_one_of_many(void *p)
{
	pthread_barrier_wait(&all_there); // all live at once
	(*(long *)p)++;
	pthread_mutex_lock(&lock);
	locked_hundred++;
	pthread_mutex_unlock(&lock);
	pthread_barrier_wait(&all_there);
	long sum = 0;
	for (int i = 0; i < MANY; i++)
		sum += own[i];
	if (sum != MANY)
		abort();
	if (p == &own[3] || p == &own[97])
		hundred++; // race hundred
	return p;
}

static void many(void)
{
	pthread_t t[MANY];
	pthread_barrier_init(&all_there, 0, MANY);
	for (int i = 0; i < MANY; i++)
		pthread_create(&t[i], 0, is_one_of_many, &own[i]);
	for (int i = 0; i < MANY; i++)
		pthread_join(t[i], 0);
	if (locked_hundred != MANY)
		abort();
}

// --- siglongjmp --------------------------------------------------------------------------------------------------------------------------

static _Thread_local sigjmp_buf before;
static long jumped, guarded;
static void jumps(int sig)
{
	(void)sig;
	guarded++; // its thread has the lock
	siglongjmp(before, 1);
}

static void *jumps_out(void *p)
{
	for (int i = 0; i < 5; i++) {
		pthread_mutex_lock(&lock);
		if (!sigsetjmp(before, 1)) {
			pthread_kill(pthread_self(), SIGUSR1);
			abort();
		}
		guarded++;
		pthread_mutex_unlock(&lock);
	}
	jumped++; // race jumped
	return p;
}

// --- swapcontext -------------------------------------------------------------------------------------------------------------------------

static long switched;
static _Thread_local ucontext_t here, there;
static void beside(void)
{
	pthread_mutex_lock(&lock);
	guarded++;
	pthread_mutex_unlock(&lock);
	swapcontext(&there, &here);
	switched++; // race switched
	swapcontext(&there, &here);
}

static void *switches(void *p)
{
	static _Thread_local char stack[65536]; // a block that the other thread had freed would order the two
	getcontext(&there);
	there.uc_stack.ss_sp = stack;
	there.uc_stack.ss_size = sizeof stack;
	there.uc_link = &here;
	makecontext(&there, beside, 0);
	swapcontext(&here, &there);
	pthread_mutex_lock(&lock);
	guarded++;
	pthread_mutex_unlock(&lock);
	swapcontext(&here, &there);
	return p;
}

// --- vfork -------------------------------------------------------------------------------------------------------------------------------

// The child writes the parent's memory, and the parent goes on when it has ended.
static volatile long by_child;
static void *vforks(void *p)
{
	by_child = 1;
	pid_t child = vfork();
	if (!child) {
		by_child = 2;
		_exit(0);
	}
	by_child = 3;
	waitpid(child, 0, 0);
	if (by_child != 3)
		abort();
	return p;
}

static long around;
static void *vforks_and_counts(void *p)
{
	pid_t child = vfork();
	if (!child)
		_exit(0);
	around++; // race around
	waitpid(child, 0, 0);
	return p;
}

// --- exec --------------------------------------------------------------------------------------------------------------------------------

static long left, ended;
static void *leaves(void *p)
{
	left++; // race left
	unseen_done();
	for (;;)
		pause();
	return p;
}

static void *executes(void *p)
{
	unseen_wait();
	left++; // race left
	execl("/proc/self/exe", (char *)p, "again", (char *)0);
	abort();
}

static void *ends(void *p)
{
	ended++; // race ended
	return p;
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		both(ends, ends);
		puts("done");
		return 0;
	}
	signal(SIGUSR1, jumps);
	many();
	both(jumps_out, jumps_out);
	both(switches, switches);
	vforks(0);
	both(vforks_and_counts, vforks_and_counts);
	unseen_begin();
	pthread_t t[2];
	pthread_create(&t[0], 0, leaves, 0);
	pthread_create(&t[1], 0, executes, argv[0]);
	for (;;)
		pause();
}
