// Accesses before a process's first fork and after it: the fork orders what its thread did, and nothing else of the parent's threads.
#include "../run.h"
#include <sys/wait.h>

static void forks(void)
{
	pid_t child = fork();
	if (!child)
		_exit(0);
	waitpid(child, 0, 0);
}

// One thread's access is before the fork, the other's after it.
static long counted;
static void *counts(void *p)
{
	counted++; // race first_fork
	unseen_done();
	return p;
}
static void *forks_and_counts(void *p)
{
	unseen_wait();
	forks();
	counted++; // race first_fork
	return p;
}

// What was sent before a fork comes back by the child.
static long sent;
static int there[2], back[2];
static void *sends(void *p)
{
	sent++;
	if (write(there[1], "x", 1) != 1)
		abort();
	unseen_done();
	return p;
}
static void *gets_it_by_a_child(void *p)
{
	char c;
	unseen_wait();
	pid_t child = fork();
	if (!child) {
		if (read(there[0], &c, 1) != 1 || write(back[1], &c, 1) != 1)
			_exit(1);
		_exit(0);
	}
	if (read(back[0], &c, 1) != 1)
		abort();
	sent++;
	waitpid(child, 0, 0);
	return p;
}

// Each case in a program that has not forked yet.
int main(int argc, char **argv)
{
	if (pipe(there) || pipe(back))
		return 1;
	if (argc == 1) {
		unseen(counts, forks_and_counts);
		execl("/proc/self/exe", argv[0], "again", (char *)0);
		return 1;
	}
	unseen(sends, gets_it_by_a_child);
	return 0;
}
