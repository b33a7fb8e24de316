/* vfork: exec, _exit, failure, big environments, threads, handlers; nothing of the child's memory may stay. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int maps(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	int n = 0, c;
	while ((c = getc(f)) != EOF)
		n += c == '\n';
	fclose(f);
	return n;
}

static char **big_env(void)
{
	char **e = calloc(3002, sizeof *e);
	for (int i = 0; i < 3000; i++) {
		e[i] = malloc(20);
		sprintf(e[i], "V%d=%d", i, i);
	}
	return e;
}

static char **env;
static char *nothing[] = {NULL};

static int run(char **e, const char *path)
{
	int st;
	volatile int mark = 1234;
	pid_t pid = vfork();
	if (pid == 0) {
		execve(path, (char *[]){"sh", "-c", "exit 3", NULL}, e);
		_exit(errno);
	}
	if (pid < 0 || mark != 1234)
		return -1;
	waitpid(pid, &st, 0);
	return st;
}

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static void *thread(void *p)
{
	for (int i = 0; i < 30; i++) {
		pthread_mutex_lock(&m);
		pthread_mutex_unlock(&m);
		if (run(i & 1 ? env : nothing, "/bin/sh") != 3 << 8)
			*(int *)p = 1;
	}
	return NULL;
}

static volatile int handled;
static void on_usr1(int s) { (void)s; handled++; }

static int in_clone(void *p)
{
	execve("/bin/sh", (char *[]){"sh", "-c", "exit 9", NULL}, p);
	_exit(1);
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	env = big_env();
	printf("exec %x big %x missing %x\n", run(nothing, "/bin/sh"), run(env, "/bin/sh"), run(env, "/nonexistent"));
	int before = maps();
	for (int i = 0; i < 100; i++)
		run(env, i % 3 ? "/bin/sh" : "/nonexistent");
	printf("mappings more %d\n", maps() - before > 3);
	int st;
	pid_t pid = vfork();
	if (pid == 0)
		_exit(5);
	waitpid(pid, &st, 0);
	printf("_exit %x\n", st);
	pid = vfork();
	if (pid == 0)
		syscall(SYS_exit_group, 6);
	waitpid(pid, &st, 0);
	printf("exit_group %x\n", st);
	/* What a shell does in there. */
	pid = vfork();
	if (pid == 0) {
		struct sigaction sa = {.sa_handler = SIG_IGN};
		sigaction(SIGHUP, &sa, NULL);
		signal(SIGUSR1, on_usr1);
		raise(SIGUSR1);
		setpgid(0, 0);
		dup2(1, 8);
		execlp("sh", "sh", "-c", "grep SigIgn /proc/self/status", (char *)NULL);
		_exit(1);
	}
	waitpid(pid, &st, 0);
	struct sigaction old;
	sigaction(SIGHUP, NULL, &old);
	printf("shell %x handled %d HUP here %s\n", st, handled, old.sa_handler == SIG_DFL ? "default" : "changed");
	signal(SIGUSR1, on_usr1);
	pid = vfork();
	if (pid == 0) {
		kill(getpid(), SIGUSR1);
		_exit(0);
	}
	waitpid(pid, &st, 0);
	printf("handler in child %d\n", handled);
	pid = vfork();
	if (pid == 0) {
		pid_t p2 = vfork();
		if (p2 == 0)
			_exit(3);
		waitpid(p2, &st, 0);
		_exit(WEXITSTATUS(st) + 1);
	}
	waitpid(pid, &st, 0);
	printf("nested %x\n", st);
	pid = vfork();
	if (pid == 0) {
		pid_t p2 = fork();
		if (p2 == 0) {
			pthread_mutex_lock(&m);
			pthread_mutex_unlock(&m);
			_exit(run(nothing, "/bin/sh") == 3 << 8 ? 7 : 1);
		}
		waitpid(p2, &st, 0);
		_exit(WEXITSTATUS(st) + 1);
	}
	waitpid(pid, &st, 0);
	printf("fork in vfork %x\n", st);
	char *stack = malloc(65536);
	pid = clone(in_clone, stack + 65536, CLONE_VM | CLONE_VFORK | SIGCHLD, env);
	waitpid(pid, &st, 0);
	printf("clone %x\n", st);
	int bad = 0;
	pthread_t t[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, thread, &bad);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	printf("threads bad %d\n", bad);
	for (int i = 0; i < 6; i++) {
		pthread_mutex_lock(&m);
		pthread_mutex_unlock(&m);
	}
	return 0;
}
