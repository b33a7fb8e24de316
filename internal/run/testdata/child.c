// Another of these programs (OF, a file's name) in a child. Its first argument is how the child comes to be: "fork": this process waits for it and ends as it does; "daemon": by daemon(3); "twice": by a fork, a session of its own, and another fork;
// "threads": by a fork of a process that has threads, who hold and wait for things all the time. The others are that program's.
// Or it is what the child does: "serve": a worker of one thread, to which requests come after a while; the third has it write a byte behind a block (put). "at once N": so many children end at once, one after another. "busy": children without end for half a second, each of which
// forks again. "closed": a daemon that records, and says every 50 ms that it lives, for long after its parent has ended. "over": what no epoch can follow, and then two seconds of sleep; says whether that took processor time.
#ifndef OF
#define OF "epochs.c"
#endif
#define main of_main
#include OF
#undef main
#include <sys/prctl.h>
#include <sys/wait.h>

static pthread_mutex_t held = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;

static void *holds(void *arg)
{
	pthread_mutex_lock(&held);
	while (!arg)
		pthread_cond_wait(&never, &held);
	for (;;) {
		free(malloc(100));
		pthread_mutex_unlock(&held);
		usleep(100);
		pthread_mutex_lock(&held);
	}
	return arg;
}

static void before(void) { pthread_mutex_lock(&held); }
static void behind(void) { pthread_mutex_unlock(&held); }

static int end_of(pid_t child)
{
	int status = 0;
	if (child < 0 || waitpid(child, &status, 0) != child)
		return 99;
	if (WIFSIGNALED(status)) {
		signal(WTERMSIG(status), SIG_DFL);
		raise(WTERMSIG(status));
	}
	return WEXITSTATUS(status);
}

__attribute__((noinline)) static void put(char *block, int n)
{
	for (int i = 0; i < n; i++)
		block[i] = (char)n;
}

static int serve(void)
{
	enum { SIZE = 40 };
	int ends[2];
	if (pipe(ends) < 0)
		return 98;
	pid_t child = fork();
	if (child == 0) {
		char *block = malloc(SIZE), n;
		close(ends[1]);
		while (read(ends[0], &n, 1) == 1)
			put(block, n);
		free(block);
		puts("done");
		return 0;
	}
	close(ends[0]);
	for (int i = 0; i < 4; i++) {
		char n = i == 2 ? SIZE + 1 : 10;
		usleep(i ? 20000 : 400000);
		if (write(ends[1], &n, 1) != 1)
			return 97;
	}
	close(ends[1]);
	return end_of(child);
}

static int at_once(int n)
{
	for (int i = 0; i < n; i++) {
		pid_t child = fork();
		if (child == 0)
			_exit(0);
		if (end_of(child) != 0)
			return 1;
	}
	return 0;
}

static void *nothing(void *arg) { return arg; }

static int busy(int depth)
{
	for (int i = 0; i < 8; i++) {
		pid_t child = fork();
		if (child == 0) {
			pthread_t t;
			if (pthread_create(&t, NULL, nothing, NULL) || pthread_join(t, NULL))
				_exit(1);
			_exit(depth ? busy(depth - 1) : 0);
		}
		usleep(10000);
		if (end_of(child) != 0)
			return 1;
	}
	return 0;
}

static int closed(void)
{
	if (daemon(1, 1))
		return 1;
	pthread_t t;
	if (pthread_create(&t, NULL, nothing, NULL) || pthread_join(t, NULL))
		return 1;
	for (int i = 0; i < 60; i++) {
		usleep(50000);
		free(malloc(100));
	}
	puts("done");
	return 0;
}

static int over(void)
{
	static char selector;
	prctl(59 /* PR_SET_SYSCALL_USER_DISPATCH */, 1, 0, 0, &selector);
	sleep(2);
	struct timespec used;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
	puts(used.tv_sec || used.tv_nsec > 500000000 ? "busy" : "idle");
	return 0;
}

int main(int argc, char **argv)
{
	int (*of)(int, char **) = (int (*)(int, char **))(void *)of_main;
	const char *how = argc > 1 ? argv[1] : "fork";
	if (strcmp(how, "serve") == 0)
		return serve();
	if (strcmp(how, "at once") == 0)
		return at_once(atoi(argv[2]));
	if (strcmp(how, "busy") == 0)
		return busy(1);
	if (strcmp(how, "closed") == 0)
		return closed();
	if (strcmp(how, "over") == 0)
		return over();
	if (strcmp(how, "daemon") == 0) {
		if (daemon(1, 1))
			return 96;
		return of(argc - 1, argv + 1);
	}
	if (strcmp(how, "threads") == 0) {
		pthread_t t;
		pthread_atfork(before, behind, behind);
		for (long i = 0; i < 4; i++)
			pthread_create(&t, NULL, holds, (void *)(i % 2));
		usleep(50000);
	}
	pid_t child = fork();
	if (child)
		return end_of(child);
	if (strcmp(how, "twice") == 0) {
		setsid();
		if ((child = fork()))
			return end_of(child);
	}
	return of(argc - 1, argv + 1);
}
