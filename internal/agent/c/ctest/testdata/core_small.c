// A small threaded program: says `start`, makes threads that lock, forks, says `done`. Every result is checked.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static int sum;
static void *run(void *p)
{
	for (int i = 0; i < 100; i++) {
		pthread_mutex_lock(&m);
		sum++;
		pthread_mutex_unlock(&m);
	}
	return p;
}
static int threads(int n)
{
	pthread_t t[100];
	for (int i = 0; i < n; i++)
		if (pthread_create(&t[i], NULL, run, t) != 0)
			return 1;
	for (int i = 0; i < n; i++) {
		void *v;
		if (pthread_join(t[i], &v) != 0 || v != t)
			return 2;
	}
	return sum != n * 100;
}
int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 3, st;
	if (write(1, "start\n", 6) != 6)
		return 9;
	int r = threads(n);
	if (r)
		return r;
	pid_t pid = fork();
	if (pid == 0) {
		sum = 0;
		_exit(threads(2));
	}
	if (pid > 0 && (waitpid(pid, &st, 0) != pid || st != 0)) /* TestFailingCalls makes the fork fail too: its call is not the agent's */
		return 4;
	if (write(1, "done\n", 5) != 5)
		return 9;
	return 3;
}
