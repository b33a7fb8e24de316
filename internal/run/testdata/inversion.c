/* Two threads take two locks in opposite orders, one after the other: an inversion that does not hang. With an argument, a child process made by
 * fork does it, with two also by exec. Exit status 3. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t lock_a = PTHREAD_MUTEX_INITIALIZER, lock_b = PTHREAD_MUTEX_INITIALIZER;
static int turns[2];

static void *forth(void *arg)
{
	pthread_mutex_lock(&lock_a);
	pthread_mutex_lock(&lock_b);
	pthread_mutex_unlock(&lock_b);
	pthread_mutex_unlock(&lock_a);
	char c = 0;
	if (write(turns[1], &c, 1) != 1)
		abort();
	return arg;
}

static void *back(void *arg)
{
	char c;
	if (read(turns[0], &c, 1) != 1)
		abort();
	pthread_mutex_lock(&lock_b);
	pthread_mutex_lock(&lock_a);
	pthread_mutex_unlock(&lock_a);
	pthread_mutex_unlock(&lock_b);
	return arg;
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		pid_t child = fork();
		if (child) {
			int status;
			if (waitpid(child, &status, 0) != child)
				return 1;
			return WIFEXITED(status) ? WEXITSTATUS(status) : 2;
		}
		if (argc > 2) {
			execl(argv[0], argv[0], NULL);
			return 1;
		}
	}
	if (pipe(turns) != 0)
		return 1;
	pthread_t t, u;
	pthread_create(&t, NULL, forth, NULL);
	pthread_create(&u, NULL, back, NULL);
	pthread_join(t, NULL);
	pthread_join(u, NULL);
	puts("done");
	return 3;
}
