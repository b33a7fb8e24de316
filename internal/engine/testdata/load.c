/* load.c: loads a library again and again while other threads run, forks, execs. load LIBRARY. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

static volatile int stop;
static long work(int n)
{
	long a[32] = {n}, s = 0;
	for (int i = 1; i < 3200; i++)
		a[i & 31] = (a[(i - 1) & 31] * 33 + i) % 10007;
	for (int i = 0; i < 32; i++)
		s += a[i];
	return s;
}

static void *worker(void *arg)
{
	long want = work((int)(long)arg), bad = 0;
	while (!stop)
		bad += work((int)(long)arg) != want;
	return (void *)bad;
}

static ucontext_t here, there;
static char stack[64 << 10];
static long from_context;
static void in_context(void)
{
	from_context = work(9);
	swapcontext(&there, &here);
	from_context += work(10);
}

int main(int argc, char **argv)
{
	pthread_t t[2];
	for (long i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, worker, (void *)i);
	long sum = 0;
	for (int i = 0; i < 30; i++) {
		void *h = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
		int (*f)(int) = (int (*)(int))dlsym(h, "plugin");
		for (int k = 0; k < 20; k++)
			sum = sum * 31 + f(i + k);
		if (i % 10 == 3) {
			fflush(stdout);
			pid_t pid = fork();
			if (pid == 0) {
				long s = work(5) + f(1);
				dlclose(h);
				h = dlopen(argv[1], RTLD_NOW);
				f = (int (*)(int))dlsym(h, "plugin");
				printf("child %ld %d\n", s, f(4));
				fflush(stdout);
				_exit(0);
			}
			waitpid(pid, NULL, 0);
		}
		if (i % 10 == 5) {
			pid_t pid = vfork();
			if (pid == 0) {
				char *args[] = {"echo", "vforked", NULL};
				execv("/bin/echo", args);
				_exit(1);
			}
			waitpid(pid, NULL, 0);
		}
		if (i % 10 == 7) {
			pid_t pid;
			char *args[] = {"echo", "spawned", NULL};
			posix_spawn(&pid, "/bin/echo", NULL, NULL, args, NULL);
			waitpid(pid, NULL, 0);
		}
		dlclose(h);
	}
	getcontext(&there);
	there.uc_stack.ss_sp = stack;
	there.uc_stack.ss_size = sizeof stack;
	there.uc_link = &here;
	makecontext(&there, in_context, 0);
	swapcontext(&here, &there);
	swapcontext(&here, &there);
	stop = 1;
	long bad = 0;
	for (int i = 0; i < 2; i++) {
		void *r;
		pthread_join(t[i], &r);
		bad += (long)r;
	}
	printf("sum %ld bad %ld context %ld\n", sum, bad, from_context);
	fflush(stdout);
	if (argc < 3) {
		char *args[] = {argv[0], argv[1], "again", NULL};
		execv(argv[0], args);
	}
	return 0;
}
