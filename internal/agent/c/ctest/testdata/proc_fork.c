/* fork in all its forms: atfork order, forks of a thread while others hold locks, daemon, forkpty, clone, raw system calls. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sched.h>
#include <pthread.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;
static char log_[100];
static void add(const char *s)
{
	if (strlen(log_) < 90)
		strcat(log_, s);
}
static void p1(void) { add("p1 "); pthread_mutex_lock(&m); }
static void p2(void) { add("p2 "); }
static void a1(void) { add("a1 "); pthread_mutex_unlock(&m); }
static void a2(void) { add("a2 "); }
static void c1(void) { add("c1 "); pthread_mutex_unlock(&m); }
static void c2(void) { add("c2 "); }

static int reap(pid_t pid)
{
	int st = -1;
	if (waitpid(pid, &st, 0) != pid)
		return -1;
	return st;
}

static atomic_int stop;
static void *holder(void *p)
{
	(void)p;
	while (!stop) {
		pthread_mutex_lock(&other);
		sched_yield();
		pthread_mutex_unlock(&other);
	}
	return NULL;
}

static void *forker(void *p)
{
	for (int i = 0; i < 50; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			pthread_mutex_lock(&m);
			pthread_mutex_unlock(&m);
			_exit(4);
		}
		if (reap(pid) != 4 << 8)
			*(int *)p = 1;
	}
	return NULL;
}

static int child_fn(void *p)
{
	pthread_mutex_lock(&m);
	pthread_mutex_unlock(&m);
	return *(int *)p;
}

static void *in_child_thread(void *p) { return p; }

int main(int argc, char **argv)
{
	(void)argv;
	setvbuf(stdout, NULL, _IONBF, 0);
	pid_t pid = fork();
	if (pid == 0)
		exit(3);
	printf("exit %x\n", reap(pid));
	pthread_atfork(p1, a1, c1);
	pthread_atfork(p2, a2, c2);
	pid = fork();
	if (pid == 0) {
		printf("child %s\n", log_);
		_exit(0);
	}
	reap(pid);
	printf("parent %s\n", log_);
	log_[0] = 0;
	pid = _Fork();
	if (pid == 0) {
		pthread_mutex_lock(&m);
		pthread_mutex_unlock(&m);
		_exit(strlen(log_));
	}
	printf("_Fork %x\n", reap(pid));
	log_[0] = 0;
	int bad = 0;
	for (int i = 0; i < 1000; i++) {
		log_[0] = 0;
		pid = fork();
		if (pid == 0)
			_exit(i & 127);
		if (reap(pid) != (i & 127) << 8)
			bad++;
	}
	printf("1000 forks bad %d\n", bad);
	/* A child makes threads and children of its own. */
	pid = fork();
	if (pid == 0) {
		pthread_t t;
		void *v;
		pthread_create(&t, NULL, in_child_thread, (void *)9);
		pthread_join(t, &v);
		log_[0] = 0;
		pid_t g = fork();
		if (g == 0)
			exit((int)(long)v);
		_exit(reap(g) >> 8);
	}
	printf("grandchild %x\n", reap(pid));
	pthread_t h, t[4];
	pthread_create(&h, NULL, holder, NULL);
	/* log_ is not for several threads */
	for (int i = 0; i < 2; i++) {
		log_[0] = 0;
		pthread_create(&t[i], NULL, forker, &bad);
		pthread_join(t[i], NULL);
		log_[0] = 0;
	}
	stop = 1;
	pthread_join(h, NULL);
	printf("in threads bad %d\n", bad);
	log_[0] = 0;
	int master;
	pid = forkpty(&master, NULL, NULL, NULL);
	if (pid == 0)
		_exit(isatty(0) ? 11 : 12);
	printf("forkpty %x\n", reap(pid));
	log_[0] = 0;
	int p[2];
	if (pipe(p) < 0)
		return 1;
	pid = fork();
	if (pid == 0) {
		log_[0] = 0;
		int r = daemon(1, 1);
		printf("daemon %d\n", r);
		_exit(0);
	}
	close(p[1]);
	char byte;
	printf("daemon is gone %zd\n", read(p[0], &byte, 1)); /* when both have let go of the pipe */
	printf("daemon's parent %x\n", reap(pid));
	char *stack = malloc(1 << 16);
	int arg = 21;
	pid = clone(child_fn, stack + (1 << 16), SIGCHLD, &arg);
	printf("clone %x\n", reap(pid));
	errno = 0;
	pid = clone(NULL, NULL, SIGCHLD, NULL);
	printf("bad clone %d %d\n", pid, errno);
	pid = (pid_t)syscall(SYS_fork);
	if (pid == 0)
		_exit(22);
	printf("raw fork %x\n", reap(pid));
	pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (pid == 0) {
		pthread_mutex_lock(&m);
		pthread_mutex_unlock(&m);
		exit(23);
	}
	printf("raw clone %x\n", reap(pid));
	struct clone_args ca = {.exit_signal = SIGCHLD};
	pid = (pid_t)syscall(SYS_clone3, &ca, sizeof ca);
	if (pid == 0)
		execlp("sh", "sh", "-c", "exit 24", (char *)NULL);
	printf("raw clone3 %x\n", reap(pid));
	errno = 0;
	long r = syscall(SYS_clone3, NULL, 0);
	printf("bad clone3 %ld %d\n", r, errno);
	errno = 0;
	r = syscall(9999);
	printf("bad syscall %ld %d\n", r, errno);
	r = syscall(SYS_getppid) == getppid();
	printf("getppid %ld\n", r);
	if (argc > 1) {
		/* Memory shared, storage shared, running at the same time: the agent gives up, the program goes on. */
		pid = clone(child_fn, stack + (1 << 16), CLONE_VM | SIGCHLD, &arg);
		printf("clone vm %x\n", reap(pid));
		pthread_mutex_lock(&m);
		pthread_mutex_unlock(&m);
	}
	log_[0] = 0;
	pid = fork();
	if (pid == 0)
		execlp("sh", "sh", "-c", "exit 25", (char *)NULL);
	printf("last %x\n", reap(pid));
	return 0;
}
