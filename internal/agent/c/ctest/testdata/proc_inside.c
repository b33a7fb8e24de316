/* Children that libc makes by itself: daemon with all its flags, the shells of wordexp. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wordexp.h>

static void words(const char *text, int flags)
{
	wordexp_t w = {0};
	errno = 0;
	int r = wordexp(text, &w, flags);
	printf("%s: %d", text, r);
	for (size_t i = 0; r == 0 && i < w.we_wordc; i++)
		printf(" [%s]", w.we_wordv[i]);
	printf("\n");
	if (r == 0)
		wordfree(&w);
}

static void become(int nochdir, int noclose, int files)
{
	int p[2];
	if (pipe(p) < 0)
		exit(1);
	pid_t pid = fork();
	if (pid == 0) {
		struct rlimit r;
		getrlimit(RLIMIT_NOFILE, &r);
		r.rlim_cur = files ? files : r.rlim_cur;
		setrlimit(RLIMIT_NOFILE, &r);
		pid_t before = getpid();
		errno = 0;
		int d = daemon(nochdir, noclose);
		int e = errno;
		char dir[PATH_MAX], text[3 * PATH_MAX], link[3][64];
		if (!getcwd(dir, sizeof dir))
			strcpy(dir, "?");
		for (int i = 0; i < 3; i++) {
			char name[32];
			sprintf(name, "/proc/self/fd/%d", i);
			ssize_t n = readlink(name, link[i], sizeof link[i] - 1);
			link[i][n < 0 ? 0 : n] = 0;
		}
		int n = sprintf(text, "daemon(%d, %d) %d errno %d: another %d, leads its session %d, in / %d, null %d %d %d, next descriptor %d\n",
			nochdir, noclose, d, e, getpid() != before, getsid(0) == getpid(), !strcmp(dir, "/"), !strcmp(link[0], "/dev/null"),
			!strcmp(link[1], "/dev/null"), !strcmp(link[2], "/dev/null"), dup(p[1]));
		if (write(p[1], text, n) != n)
			_exit(9);
		_exit(5);
	}
	close(p[1]);
	char text[1000] = "";
	size_t n = 0;
	ssize_t got;
	while ((got = read(p[0], text + n, sizeof text - 1 - n)) > 0)
		n += got;
	close(p[0]);
	int status = 0;
	waitpid(pid, &status, 0);
	printf("%sparent %x\n", text, status);
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	setenv("name", "value", 1);
	words("plain $name $((1 + 2)) ~root", 0);
	words("$(echo a b) `echo c` \"$(env | grep -cE '^(LD_PRELOAD|RIPSTOP)')\"", 0);
	words("$(exit 3)", 0);
	words("$(echo a)", WRDE_NOCMD);
	words("a | b", 0);
	signal(SIGCHLD, SIG_DFL);
	for (int i = 0; i < 4; i++)
		become(i & 1, i >> 1, 0);
	become(0, 0, 5); /* too few descriptors for /dev/null */
	return 0;
}
