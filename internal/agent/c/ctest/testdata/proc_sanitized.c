/* Without arguments a right program with threads; with them it executes each of them, itself built with a sanitizer, in a child and in a shell's child. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static int count;

static void *work(void *arg)
{
	for (int i = 0; i < 100; i++) {
		pthread_mutex_lock(&m);
		count++;
		pthread_mutex_unlock(&m);
		free(malloc(100));
	}
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t t[2];
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, work, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	printf("%d\n", count);
	for (int i = 1; i < argc; i++) {
		fflush(stdout);
		pid_t pid = fork();
		if (pid == 0) {
			execl(argv[i], argv[i], (char *)NULL);
			_exit(9);
		}
		int st = 0;
		waitpid(pid, &st, 0);
		printf("%d\n", WIFEXITED(st) ? WEXITSTATUS(st) : -WTERMSIG(st));
		st = system(argv[i]);
		printf("%d\n", WIFEXITED(st) ? WEXITSTATUS(st) : -WTERMSIG(st));
	}
	return 0;
}
