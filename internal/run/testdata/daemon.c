// A daemon. Argument: a FIFO. When the program's first process is gone it writes its pid there, takes two locks in two orders when it has read from
// it, and ends. Another argument: it is started by glibc's own daemon(), which forks unseen; else by fork.
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t lock_a = PTHREAD_MUTEX_INITIALIZER, lock_b = PTHREAD_MUTEX_INITIALIZER;

static void *forth(void *p)
{
	pthread_mutex_lock(&lock_a);
	pthread_mutex_lock(&lock_b);
	pthread_mutex_unlock(&lock_b);
	pthread_mutex_unlock(&lock_a);
	return p;
}

static void *back(void *p)
{
	pthread_mutex_lock(&lock_b);
	pthread_mutex_lock(&lock_a);
	pthread_mutex_unlock(&lock_a);
	pthread_mutex_unlock(&lock_b);
	return p;
}

static void *back_later(void *p)
{
	while (!__atomic_load_n((int *)p, __ATOMIC_ACQUIRE))
		sched_yield();
	return back(p);
}

int main(int argc, char **argv)
{
	pid_t first = getpid();
	if (argc > 2) {
		if (daemon(1, 0))
			return 1;
	} else {
		pid_t child = fork();
		if (child)
			return child < 0;
		for (int fd = 0; fd < 3; fd++)
			close(fd);
	}
	while (kill(first, 0) == 0 || errno != ESRCH)
		sched_yield();
	char text[20];
	int fd = open(argv[1], O_WRONLY), n = snprintf(text, sizeof text, "%d\n", (int)getpid());
	if (write(fd, text, (size_t)n) != n || close(fd) || (fd = open(argv[1], O_RDONLY)) < 0 || read(fd, text, 1) != 1)
		return 1;
	pthread_t a, b;
	int done = 0;
	pthread_create(&b, NULL, back_later, &done);
	pthread_create(&a, NULL, forth, NULL);
	pthread_join(a, NULL);
	__atomic_store_n(&done, 1, __ATOMIC_RELEASE);
	pthread_join(b, NULL);
	return 0;
}
