// A forked child that shuts itself in before it does anything that is watched, and then takes two locks in two orders. Arguments: an empty
// directory, and how: c chroot, n network namespace, t another /tmp (and mount namespace). Whoever is not root becomes it in a user namespace.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/wait.h>
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

static int shut_in(const char *dir, const char *how)
{
	if (geteuid() != 0 && unshare(CLONE_NEWUSER))
		return -1;
	for (; *how; how++)
		if ((*how == 'c' && (chroot(dir) || chdir("/"))) || (*how == 'n' && unshare(CLONE_NEWNET)) ||
		    (*how == 't' && (unshare(CLONE_NEWNS) || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) || mount("none", "/tmp", "tmpfs", 0, NULL))))
			return -1;
	return 0;
}

int main(int argc, char **argv)
{
	pid_t child = fork();
	if (child == 0) {
		pthread_t t;
		if (argc < 3 || shut_in(argv[1], argv[2])) {
			perror("cannot shut myself in");
			_exit(1);
		}
		pthread_create(&t, NULL, forth, NULL);
		pthread_join(t, NULL);
		pthread_create(&t, NULL, back, NULL);
		pthread_join(t, NULL);
		_exit(0);
	}
	int status = 1;
	waitpid(child, &status, 0);
	return status ? 1 : 3;
}
