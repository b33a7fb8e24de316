/* System calls of many kinds, as many in each run: by libc's functions, by syscall(), in threads, in handlers, in children by fork, vfork and posix_spawn; errors; a
 * cancelled thread; calls that signals interrupt. Prints what it found, which is the same in every run. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

static void need(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static void plain(void)
{
	char buffer[512];
	struct stat st;
	int fd = open("/proc/self/cmdline", O_RDONLY), errors = 0;
	need(fd >= 0, "open");
	for (int i = 0; i < 100; i++) {
		need(pread(fd, buffer, sizeof buffer, 0) > 0, "pread");
		errors += close(-1) < 0 && errno == EBADF;
		errors += open("/nonexistent/file", O_RDONLY) < 0 && errno == ENOENT;
		errors += stat("/", &st) < 0;
		errors += lseek(fd, -5, SEEK_SET) < 0 && errno == EINVAL;
		errors += syscall(SYS_getppid) < 0;
		errors += syscall(100000) < 0 && errno == ENOSYS;
		errors += kill(getpid(), 0) < 0;
		errors += dup2(fd, -1) < 0 && errno == EBADF;
		errors += readv(-1, NULL, 0) < 0;
	}
	close(fd);
	printf("plain: %d errors\n", errors);
}

static int pipes[2];
static volatile int handled;

static void handler(int sig)
{
	(void)sig;
	handled++;
	for (int i = 0; i < 3; i++)
		(void)getppid();
}

static void *thread(void *arg)
{
	struct timespec t = {0, 1000};
	for (int i = 0; i < 200; i++) {
		need(write(-1, "x", 1) < 0, "write to nowhere");
		(void)syscall(SYS_gettid);
		if (i % 50 == 0)
			nanosleep(&t, NULL);
	}
	return arg;
}

static void threads(void)
{
	for (int round = 0; round < 3; round++) {
		pthread_t t[8];
		for (long i = 0; i < 8; i++)
			need(pthread_create(&t[i], NULL, thread, (void *)i) == 0, "pthread_create");
		for (int i = 0; i < 8; i++)
			need(pthread_join(t[i], NULL) == 0, "pthread_join");
	}
	printf("threads\n");
}

static void signals(void)
{
	struct sigaction sa = {.sa_handler = handler};
	need(sigaction(SIGUSR1, &sa, NULL) == 0, "sigaction");
	for (int i = 0; i < 500; i++)
		need(raise(SIGUSR1) == 0, "raise");
	sigset_t set, old;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR1);
	sigprocmask(SIG_BLOCK, &set, &old);
	raise(SIGUSR1);
	sigsuspend(&old);
	sigprocmask(SIG_SETMASK, &old, NULL);
	printf("signals: %d\n", handled);
}

/* Waits until the task tid waits in the call number nr, of which only the first look is a call that counts for the comparison. */
static void await_call(int tid, long nr)
{
	char path[64], state[64];
	for (;;) {
		snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tid);
		int fd = open(path, O_RDONLY);
		ssize_t n = fd < 0 ? -1 : read(fd, state, sizeof state - 1);
		if (fd >= 0)
			close(fd);
		state[n > 0 ? n : 0] = 0;
		if (atol(state) == nr && n > 0 && state[0] != 'r')
			return;
		sched_yield();
	}
}

static volatile int tid, cleaned;
static void clean(void *arg) { (void)arg; cleaned++; }

static void *reader(void *arg)
{
	char c;
	(void)arg;
	pthread_cleanup_push(clean, NULL);
	tid = gettid();
	while (read(pipes[0], &c, 1) < 0 && errno == EINTR)
		cleaned += 10;
	pthread_cleanup_pop(0);
	return NULL;
}

static void cancel(void)
{
	need(pipe(pipes) == 0, "pipe");
	for (int i = 0; i < 20; i++) {
		pthread_t t;
		void *value;
		tid = 0;
		need(pthread_create(&t, NULL, reader, NULL) == 0, "pthread_create");
		while (!tid)
			sched_yield();
		await_call(tid, SYS_read);
		pthread_cancel(t);
		pthread_join(t, &value);
		need(value == PTHREAD_CANCELED, "cancelled");
	}
	printf("cancelled: %d cleaned up\n", cleaned);
}

static void children(void)
{
	int status, sum = 0;
	for (int i = 0; i < 10; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			for (int j = 0; j < 10; j++)
				(void)getppid();
			if (i % 2)
				_exit(i);
			char *argv[] = {"true", NULL};
			execv("/bin/true", argv);
			_exit(127);
		}
		need(waitpid(pid, &status, 0) == pid, "waitpid");
		sum += WEXITSTATUS(status);
	}
	for (int i = 0; i < 5; i++) {
		pid_t pid = vfork();
		if (pid == 0) {
			execl("/bin/false", "false", (char *)NULL);
			_exit(127);
		}
		need(pid > 0 && waitpid(pid, &status, 0) == pid, "waitpid of vfork");
		sum += WEXITSTATUS(status);
	}
	for (int i = 0; i < 5; i++) {
		pid_t pid;
		char *argv[] = {"true", NULL};
		need(posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ) == 0 && waitpid(pid, &status, 0) == pid, "posix_spawn");
		need(posix_spawnp(&pid, "nonexistent-program", NULL, NULL, argv, environ) == ENOENT, "posix_spawn of nothing");
	}
	sum += WEXITSTATUS(system("exit 7"));
	FILE *f = popen("echo popen", "r");
	char line[32] = "";
	need(f && fgets(line, sizeof line, f), "popen");
	sum += pclose(f);
	printf("children: %d, %s", sum, line);
}

int main(int argc, char **argv)
{
	static const struct { const char *name; void (*f)(void); } parts[] = {
		{"plain", plain}, {"threads", threads}, {"signals", signals}, {"cancel", cancel}, {"children", children},
	};
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (unsigned i = 0; i < sizeof parts / sizeof *parts; i++)
		for (int j = 1; j < argc; j++)
			if (strcmp(argv[j], parts[i].name) == 0)
				parts[i].f();
	return 0;
}
