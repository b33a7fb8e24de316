/* system and popen: status, errors, signals, concurrency, cancellation, streams in later children. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int ints, chlds;
static void on_int(int s) { (void)s; ints++; }
static void on_chld(int s) { (void)s; chlds++; }

static void *runs(void *p)
{
	for (int i = 0; i < 5; i++)
		if (system("exit 3") != 3 << 8)
			*(int *)p = 1;
	return NULL;
}

static void *sleeps(void *p)
{
	(void)p;
	system("echo x >&8; exec sleep 1000");
	return NULL;
}

static void disposition(const char *when)
{
	struct sigaction sa;
	sigaction(SIGINT, NULL, &sa);
	printf("%s: INT %s", when, sa.sa_handler == on_int ? "own" : sa.sa_handler == SIG_IGN ? "ignored" : "default");
	sigaction(SIGQUIT, NULL, &sa);
	printf(" QUIT %s\n", sa.sa_handler == SIG_DFL ? "default" : "other");
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	printf("null %d\n", system(NULL));
	printf("true %x false %x\n", system("true"), system("false"));
	printf("sig %x\n", system("kill -TERM $$"));
	printf("not found %x\n", system("rs-no-such-program 2>/dev/null"));
	system("echo $0; env | grep -E '^(LD_PRELOAD|RIPSTOP)'");
	setenv("LD_PRELOAD", "", 1);
	system("env | grep -E '^(LD_PRELOAD|RIPSTOP)'");
	unsetenv("LD_PRELOAD");

	signal(SIGINT, on_int);
	printf("int %x %d\n", system("kill -INT $PPID; kill -INT $$; sleep 5"), ints);
	disposition("after system");
	signal(SIGCHLD, on_chld);
	system("true");
	printf("chld %d\n", chlds);
	sigset_t m;
	sigprocmask(SIG_BLOCK, NULL, &m);
	printf("mask chld %d\n", sigismember(&m, SIGCHLD));
	signal(SIGCHLD, SIG_IGN);
	errno = 0;
	int r = system("exit 3");
	printf("chld ignored %d %d\n", r, errno);
	signal(SIGCHLD, SIG_DFL);
	int bad = 0;
	pthread_t t[4];
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, runs, &bad);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	printf("concurrent bad %d\n", bad);
	disposition("after concurrent");
	int p[2];
	char byte;
	if (pipe(p) < 0 || dup2(p[1], 8) < 0)
		return 1;
	pthread_create(&t[0], NULL, sleeps, NULL);
	printf("started %zd\n", read(p[0], &byte, 1));
	disposition("during");
	pthread_cancel(t[0]);
	void *v;
	pthread_join(t[0], &v);
	printf("cancelled %d left %d\n", v == PTHREAD_CANCELED, waitpid(-1, NULL, WNOHANG));
	disposition("after cancel");

	char line[200];
	FILE *f = popen("echo one; env | grep -E '^(LD_PRELOAD|RIPSTOP)'; exit 4", "r");
	while (fgets(line, sizeof line, f))
		printf("got %s", line);
	printf("pclose %x\n", pclose(f));
	f = popen("cat; exit 2", "w");
	fputs("through cat\n", f);
	printf("pclose w %x\n", pclose(f));
	f = popen("exit 6", "r");
	printf("fclose %x\n", fclose(f));
	f = popen("kill -9 $$", "r");
	printf("killed %x\n", pclose(f));
	f = popen("true", "re");
	printf("e %d\n", fcntl(fileno(f), F_GETFD));
	pclose(f);
	f = popen("true", "r");
	printf("no e %d\n", fcntl(fileno(f), F_GETFD));
	/* The first one's descriptor must not be in the second's shell. */
	char cmd[100];
	sprintf(cmd, "test -e /proc/self/fd/%d && echo leaked", fileno(f));
	FILE *g = popen(cmd, "w"), *h = popen("cat", "w");
	fputs("nested\n", h);
	printf("h %x g %x f %x\n", pclose(h), pclose(g), pclose(f));
	errno = 0;
	f = popen("true", "q");
	printf("mode %p %d\n", (void *)f, errno);
	f = popen("true", "rw");
	printf("mode %p %d\n", (void *)f, errno);
	f = popen("true", "");
	printf("mode %p %d\n", (void *)f, errno);
	f = fopen("/dev/null", "r");
	printf("pclose of a file %d\n", pclose(f));
	f = popen("sleep 0.1; exit 1", "r");
	int fd = fileno(f);
	pid_t pid = fork();
	if (pid == 0) {
		errno = 0;
		int p = pclose(f);
		printf("in child %d %d\n", p, errno);
		_exit(0);
	}
	waitpid(pid, NULL, 0);
	printf("in parent %x\n", pclose(f));
	f = popen("exit 1", "r");
	close(fileno(f));
	errno = 0;
	printf("closed behind %x", pclose(f));
	printf(" %d left %d\n", errno, waitpid(-1, NULL, 0) > 0);
	f = popen("exit 1", "r");
	waitpid(-1, NULL, 0);
	errno = 0;
	printf("reaped behind %d", pclose(f));
	printf(" %d\n", errno);
	/* Descriptor 0 and 1 free: the pipe takes them. */
	int keep = dup(1);
	close(0);
	close(1);
	f = popen("cat >&2; exit 8", "w");
	if (f)
		fputs("via 0\n", f);
	r = f ? pclose(f) : -1;
	dup2(keep, 1);
	printf("std closed %x\n", r);
	open("/dev/null", O_RDONLY);
	for (int i = 0; i < 100; i++) {
		f = popen("exit 1", i & 1 ? "r" : "w");
		if (!f || pclose(f) != 256)
			printf("lost %d\n", i);
	}
	char *big = malloc(300000);
	memset(big, ' ', 300000);
	big[299999] = 0;
	errno = 0;
	f = popen(big, "r");
	printf("long %p %d\n", (void *)f, errno);
	errno = 0;
	r = system(big);
	printf("long %x %d\n", r, errno);
	printf("fd %d\n", fd > 0);
	return 0;
}
