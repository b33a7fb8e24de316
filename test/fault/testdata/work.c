// Work with a result that does not depend on the schedule.
//   work threads N ROUNDS   N threads that nest locks in one order, and then N more
//   work forks              children by fork, fork and exec, vfork and exec, posix_spawn, system, popen; each with threads of its own
//   work single ROUNDS      one thread
//   work all ROUNDS         threads that come and go, forks and locks, until ROUNDS are done
#define _GNU_SOURCE
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;
static pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER, inner = PTHREAD_MUTEX_INITIALIZER;
static long sum, rounds;

static void *worker(void *arg)
{
	for (long i = 0; i < rounds; i++) {
		pthread_mutex_lock(&outer);
		pthread_mutex_lock(&inner);
		char *p = malloc(16 + (size_t)i % 100);
		sum += (long)arg;
		free(p);
		pthread_mutex_unlock(&inner);
		pthread_mutex_unlock(&outer);
	}
	return arg;
}

static void threads(long n)
{
	pthread_t *t = calloc((size_t)n, sizeof *t);
	for (long i = 0; i < n; i++)
		if (pthread_create(&t[i], NULL, worker, (void *)(i + 1))) {
			puts("no thread");
			exit(99);
		}
	for (long i = 0; i < n; i++) {
		void *r;
		if (pthread_join(t[i], &r) || r != (void *)(i + 1)) {
			puts("no join");
			exit(99);
		}
	}
	free(t);
}

static void ended(const char *what, pid_t pid)
{
	int status = -1;
	if (pid < 0 || waitpid(pid, &status, 0) != pid)
		status = -1;
	printf("%s %x\n", what, (unsigned)status);
	fflush(stdout);
}

static void forks(const char *self)
{
	char *leaf[] = {(char *)self, "leaf", NULL};
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		sum = 0;
		threads(3);
		exit(sum == 6 * rounds ? 5 : 9);
	}
	ended("fork", pid);
	if ((pid = fork()) == 0) {
		threads(1);
		execv(self, leaf);
		_exit(127);
	}
	ended("fork and exec", pid);
	if ((pid = vfork()) == 0) {
		execve(self, leaf, environ);
		_exit(127);
	}
	ended("vfork and exec", pid);
	if (posix_spawn(&pid, self, NULL, NULL, leaf, environ))
		pid = -1;
	ended("spawn", pid);
	printf("system %x\n", (unsigned)system("exit 3"));
	FILE *p = popen("echo from a pipe", "r");
	char line[100] = "";
	if (p && fgets(line, sizeof line, p))
		printf("popen %s", line);
	printf("pclose %x\n", p ? (unsigned)pclose(p) : ~0u);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	const char *what = argc > 1 ? argv[1] : "";
	rounds = 50;
	if (!strcmp(what, "leaf")) {
		threads(2);
		return sum == 3 * rounds ? 4 : 9;
	}
	if (!strcmp(what, "single")) {
		rounds = atol(argv[2]);
		worker((void *)1);
	} else if (!strcmp(what, "threads")) {
		rounds = atol(argv[3]);
		threads(atol(argv[2]));
		threads(atol(argv[2]));
	} else if (!strcmp(what, "forks")) {
		threads(2);
		forks(argv[0]);
	} else if (!strcmp(what, "all")) {
		long n = atol(argv[2]);
		for (long i = 0; i < n; i++) {
			rounds = 3000;
			threads(6);
			rounds = 20;
			threads(20);
			forks(argv[0]);
		}
	}
	printf("sum %ld\n", sum);
	return 7;
}
