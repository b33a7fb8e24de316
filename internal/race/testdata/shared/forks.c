// A process was made by who stands on a stack in watched memory, which a child has in common with its parent until it has its copy: both ran on the same bytes, and one of them died. And children that were made by a system call of the program's own, or by clone(),
// had all memory of malloc's in common with their parent, and wrote to it.
#define _GNU_SOURCE
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { STACK = 256 << 10, MANY = 10 };
static ucontext_t back, there;
static char in_bss[STACK];
static int global;
static int *small, *large;

static int status_of(pid_t pid)
{
	int status = -1;
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + status;
}

/* What a child does: all of it is its own. */
static int child(void)
{
	int sum = global + small[3] + large[30000];
	global = small[3] = large[30000] = 77;
	char text[2000];
	memset(text, 'x', sizeof text);
	return sum + (text[1999] == 'x') + small[3] - 77;
}

static int cloned(void *arg) { return child() + *(int *)arg; }

static pid_t by_instruction(void)
{
	long r = SYS_clone;
	register long r10 __asm__("r10") = 0, r8 __asm__("r8") = 0;
	__asm__ volatile("syscall" : "+a"(r) : "D"((long)SIGCHLD), "S"(0l), "d"(0l), "r"(r10), "r"(r8) : "rcx", "r11", "memory");
	return (pid_t)r;
}

/* In a child nothing is watched any more, and its memory is the region's still. */
static int grandchildren(void)
{
	static char stack[STACK];
	int none = 0;
	small[3] = large[30000] = global = 1;
	pid_t p = clone(cloned, stack + STACK, CLONE_VM | CLONE_VFORK | SIGCHLD, &none);
	int sum = status_of(p) + global;
	p = (pid_t)syscall(SYS_fork);
	if (p == 0)
		_exit(child());
	return sum + status_of(p) + small[3];
}

static int fork_in_all_ways(void)
{
	int sum = 0;
	pid_t p = fork();
	if (p == 0)
		_exit(child());
	sum += status_of(p);
	p = (pid_t)syscall(SYS_fork);
	if (p == 0)
		_exit(child());
	sum += status_of(p);
	p = by_instruction();
	if (p == 0)
		_exit(child());
	sum += status_of(p);
	p = fork();
	if (p == 0)
		_exit(grandchildren());
	sum += status_of(p);
	char *stack = malloc(STACK);
	int more = 2;
	p = clone(cloned, stack + STACK, SIGCHLD, &more);
	free(stack); /* the child has its own */
	sum += status_of(p);
	return sum;
}

static int result;
static void coroutine(void)
{
	for (int i = 0; i < 2; i++)
		result += fork_in_all_ways();
}

static void on(char *stack)
{
	result = 0;
	getcontext(&there);
	there.uc_stack.ss_sp = stack;
	there.uc_stack.ss_size = STACK;
	there.uc_link = &back;
	makecontext(&there, coroutine, 0);
	swapcontext(&back, &there);
	printf("%d %d %d %d\n", result, global, small[3], large[30000]);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static void *thread(void *arg)
{
	for (int i = 0; i < 4; i++) {
		pthread_mutex_lock(&lock);
		++*(int *)arg;
		pthread_mutex_unlock(&lock);
		pid_t p = fork();
		if (p == 0)
			_exit(5);
		if (status_of(p) != 5)
			abort();
	}
	return NULL;
}

int main(void)
{
	small = malloc(64);
	large = malloc(200000);
	global = 1, small[3] = 2, large[30000] = 3;
	char *block = malloc(STACK), *mapping = mmap(NULL, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	pthread_t t[2];
	on(block);
	on(in_bss);
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, thread, &global);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	printf("%d\n", global);
	on(block);
	on(in_bss);
	on(mapping);
	result = 0;
	for (int i = 0; i < MANY; i++)
		result += fork_in_all_ways();
	printf("%d %d %d %d\n", result, global, small[3], large[30000]);
	return 0;
}
