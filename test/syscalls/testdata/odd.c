/* Programs that do what is seldom done; the first argument says what. */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static void *busy(void *arg)
{
	for (long i = 0; i < (long)arg; i++)
		(void)getppid();
	return NULL;
}

/* Both live until both are done: neither is given the other's place. */
static pthread_barrier_t done;
static void *together(void *arg)
{
	busy(arg);
	pthread_barrier_wait(&done);
	return NULL;
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	if (strcmp(what, "status") == 0)
		return 42;
	if (strcmp(what, "kill") == 0) {
		for (int i = 0; i < 5; i++)
			(void)getppid();
		kill(getpid(), SIGKILL);
	}
	if (strcmp(what, "raw-exit") == 0) {
		for (int i = 0; i < 5; i++)
			(void)getppid();
		syscall(SYS_exit_group, 9);
	}
	if (strcmp(what, "vdso") == 0) {
		struct timespec t;
		struct timeval v;
		for (int i = 0; i < 1000; i++)
			clock_gettime(CLOCK_MONOTONIC, &t);
		for (int i = 0; i < 300; i++)
			gettimeofday(&v, NULL);
		for (int i = 0; i < 70; i++)
			time(NULL);
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t); /* by the vdso's own system call */
	}
	if (strcmp(what, "threads") == 0) {
		/* More at a time than a region has places for, then many one after the other. */
		pthread_t t[200];
		for (long i = 0; i < 200; i++)
			if (pthread_create(&t[i], NULL, busy, (void *)100) != 0)
				abort();
		for (int i = 0; i < 200; i++)
			pthread_join(t[i], NULL);
		for (int i = 0; i < 300; i++) {
			if (pthread_create(&t[0], NULL, busy, (void *)10) != 0)
				abort();
			pthread_join(t[0], NULL);
		}
	}
	if (strcmp(what, "own") == 0) {
		pthread_t t[2];
		pthread_barrier_init(&done, NULL, 2);
		for (long i = 0; i < 2; i++)
			pthread_create(&t[i], NULL, together, (void *)(1000 * (i + 1)));
		for (int i = 0; i < 2; i++)
			pthread_join(t[i], NULL);
	}
	if (strcmp(what, "no-tsc") == 0) {
		for (int i = 0; i < 5; i++)
			(void)getppid();
		if (prctl(PR_SET_TSC, PR_TSC_SIGSEGV) != 0)
			abort();
		for (int i = 0; i < 5; i++)
			(void)getppid();
		puts("no clock");
	}
	if (strcmp(what, "seccomp") == 0) {
		/* getppid fails with ENOTTY. */
		struct sock_filter f[] = {
			BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
			BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getppid, 0, 1),
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY),
			BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		};
		struct sock_fprog p = {4, f};
		if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p))
			abort();
		for (int i = 0; i < 5; i++)
			printf("%d ", (int)syscall(SYS_getppid) == -1 && errno == ENOTTY);
		puts("");
	}
	if (strcmp(what, "strict") == 0) {
		fflush(stdout);
		if (prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT))
			abort();
		for (int i = 0; i < 5; i++)
			if (write(1, "strict\n", 7) != 7)
				abort();
		syscall(SYS_exit, 3);
	}
	if (strcmp(what, "fork-storm") == 0) {
		int sum = 0, status;
		for (int i = 0; i < 60; i++) {
			pid_t pid = fork();
			if (pid == 0) {
				for (int j = 0; j < 7; j++)
					(void)getppid();
				pid_t again = fork();
				if (again == 0) {
					(void)getppid();
					_exit(1);
				}
				waitpid(again, &status, 0);
				_exit(WEXITSTATUS(status));
			}
			waitpid(pid, &status, 0);
			sum += WEXITSTATUS(status);
		}
		printf("%d children\n", sum);
	}
	if (strcmp(what, "survive") == 0) {
		puts("begun");
		fflush(stdout);
		while (access("go", 0) != 0)
			(void)getppid();
		pthread_t t;
		int status;
		pthread_create(&t, NULL, busy, (void *)1000);
		pthread_join(t, NULL);
		pid_t pid = fork();
		if (pid == 0)
			_exit(busy((void *)1000) ? 1 : 5);
		waitpid(pid, &status, 0);
		FILE *f = fopen("done.tmp", "w");
		fprintf(f, "%d", WEXITSTATUS(status));
		fclose(f);
		rename("done.tmp", "done");
	}
	if (strcmp(what, "coroutines") == 0) {
		static ucontext_t a, b;
		static char stack[1 << 16];
		getcontext(&b);
		b.uc_stack.ss_sp = stack;
		b.uc_stack.ss_size = sizeof stack;
		b.uc_link = &a;
		makecontext(&b, (void (*)(void))busy, 1, (long)50);
		swapcontext(&a, &b);
		puts("back");
	}
	return 0;
}
