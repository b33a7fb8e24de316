// Forks from threads while others lock; the children lock, make threads, fork again, and say how they end.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t m[4] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static volatile int stop;
static void *busy(void *p)
{
	pthread_mutex_t *x = p;
	while (!stop) {
		pthread_mutex_lock(x);
		pthread_mutex_unlock(x);
	}
	return NULL;
}
static void *child_thread(void *p)
{
	pthread_mutex_lock(&m[3]);
	pthread_mutex_unlock(&m[3]);
	return p;
}
static int child(int depth)
{
	pthread_t t;
	void *v;
	pthread_mutex_lock(&m[3]);
	pthread_mutex_unlock(&m[3]);
	if (pthread_create(&t, NULL, child_thread, (void *)7) != 0 || pthread_join(t, &v) != 0 || v != (void *)7)
		return 1;
	if (depth) {
		pid_t pid = fork();
		if (pid == 0)
			_exit(child(depth - 1));
		int st;
		if (waitpid(pid, &st, 0) != pid || st != 0)
			return 2;
	}
	return 0;
}
static void *forker(void *p)
{
	for (int i = 0; i < 10; i++) {
		pid_t pid = fork();
		if (pid == 0)
			_exit(child(1));
		int st;
		if (waitpid(pid, &st, 0) != pid || st != 0)
			printf("child: %x\n", st);
	}
	return p;
}
int main(void)
{
	pthread_t t[4];
	pthread_create(&t[0], NULL, busy, &m[0]);
	pthread_create(&t[1], NULL, busy, &m[1]);
	pthread_create(&t[2], NULL, forker, NULL);
	pthread_create(&t[3], NULL, forker, NULL);
	pthread_join(t[2], NULL);
	pthread_join(t[3], NULL);
	stop = 1;
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
	printf("done\n");
	return 0;
}
