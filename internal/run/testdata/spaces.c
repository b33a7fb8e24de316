// Goes into a namespace of users, as sandboxes do, which the kernel lets only a process of one thread do; before that a thread ends, and behind it are files, threads and a child.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int count;

static void *work(void *arg)
{
	for (int i = 0; i < 100; i++) {
		pthread_mutex_lock(&lock);
		count++;
		pthread_mutex_unlock(&lock);
	}
	return arg;
}

static void some(void)
{
	pthread_t t;
	char text[16] = "";
	pthread_create(&t, NULL, work, NULL);
	pthread_join(t, NULL);
	for (int i = 0; i < 3; i++) {
		int fd = open("/proc/self/comm", O_RDONLY), n = (int)read(fd, text, sizeof text - 1);
		text[n > 0 ? n : 0] = 0;
		close(fd);
	}
	printf("%d %s", count, text);
}

// A thread that was joined may still be one to the kernel, for a moment.
static const char *goes(void)
{
	for (int i = 0; i < 1000; i++, usleep(500))
		if (unshare(CLONE_NEWUSER) == 0)
			return "done";
		else if (errno != EINVAL)
			break;
	return strerror(errno);
}

int main(void)
{
	some();
	printf("unshare %s\n", goes());
	some();
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		printf("in the child: unshare %s\n", goes());
		some();
		fflush(stdout);
		_exit(3);
	}
	int status = -1;
	waitpid(child, &status, 0);
	printf("%d, again: unshare %s\n", status, goes());
	some();
	return 4;
}
