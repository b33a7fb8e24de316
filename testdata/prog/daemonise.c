// A daemon: two forks, its own session, no descriptors but the one by which it says that it is ready. Nobody does wrong.
// ripstop: verdict none
// ripstop: flags --wait-for=all
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int served;

static void *serve(void *arg)
{
	pthread_mutex_lock(&lock);
	served++;
	pthread_mutex_unlock(&lock);
	return arg;
}

static void daemon_main(int ready)
{
	pthread_t t[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, serve, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	char c = served == 4 ? 'r' : '?';
	(void)!write(ready, &c, 1);
	close(ready);
	for (int i = 0; i < 4; i++) /* it works on while its first parent ends */
		pthread_create(&t[i], NULL, serve, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	_exit(0);
}

int main(void)
{
	int p[2];
	char c = 0;
	if (pipe(p) != 0)
		return 1;
	pid_t child = fork();
	if (child == 0) {
		setsid();
		if (fork() == 0) {
			int null = open("/dev/null", O_RDWR);
			for (int fd = 0; fd < 3; fd++)
				dup2(null, fd);
			close(null);
			close(p[0]);
			daemon_main(p[1]);
		}
		_exit(0);
	}
	close(p[1]);
	waitpid(child, NULL, 0);
	(void)!read(p[0], &c, 1);
	puts(c == 'r' ? "ready" : "not ready");
	return 0;
}
