/* posix_spawn and posix_spawnp with attributes and file actions. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t pid;
static void done(const char *name, int r)
{
	int st = -1;
	if (r == 0)
		waitpid(pid, &st, 0);
	printf("%s: %d %x\n", name, r, st);
	fflush(stdout);
}

int main(void)
{
	setvbuf(stdout, NULL, _IONBF, 0);
	char *env[] = {"A=1", "PATH=/bin", NULL};
	char *sh[] = {"sh", "-c", "env; exit 5", NULL};
	done("plain", posix_spawn(&pid, "/bin/sh", NULL, NULL, sh, env));
	done("p", posix_spawnp(&pid, "sh", NULL, NULL, sh, env));
	done("null env", posix_spawnp(&pid, "sh", NULL, NULL, sh, NULL));
	pid = -1;
	done("null pid", posix_spawn(NULL, "/bin/true", NULL, NULL, (char *[]){"true", NULL}, env));
	pid = -5;
	int r = posix_spawn(&pid, "/nonexistent", NULL, NULL, sh, env);
	printf("missing: %d\n", r);
	r = posix_spawnp(&pid, "no-such-thing-at-all", NULL, NULL, sh, env);
	printf("missing p: %d\n", r);
	r = posix_spawn(&pid, "/etc/passwd", NULL, NULL, sh, env);
	printf("not executable: %d\n", r);
	char *big = malloc(3 << 20);
	memset(big, 'x', (3 << 20) - 1);
	big[(3 << 20) - 1] = 0;
	r = posix_spawn(&pid, "/bin/true", NULL, NULL, (char *[]){"true", big, NULL}, env);
	printf("E2BIG: %d\n", r);

	posix_spawn_file_actions_t fa;
	posix_spawn_file_actions_init(&fa);
	posix_spawn_file_actions_addopen(&fa, 0, "/dev/null", O_RDONLY, 0);
	posix_spawn_file_actions_adddup2(&fa, 1, 9);
	posix_spawn_file_actions_addclose(&fa, 1);
	posix_spawn_file_actions_addchdir_np(&fa, "/usr");
	done("file actions", posix_spawn(&pid, "/bin/sh", &fa, NULL, (char *[]){"sh", "-c", "(pwd; readlink /proc/self/fd/0) >&9; echo no 2>&9", NULL}, env));
	posix_spawn_file_actions_adddup2(&fa, 9, 1);
	done("relative after chdir", posix_spawn(&pid, "bin/env", &fa, NULL, (char *[]){"env", NULL}, env));
	posix_spawn_file_actions_addopen(&fa, 5, "/nonexistent/x", O_RDONLY, 0);
	r = posix_spawn(&pid, "/bin/true", &fa, NULL, sh, env);
	printf("bad action: %d\n", r);

	posix_spawnattr_t at;
	posix_spawnattr_init(&at);
	sigset_t m;
	sigemptyset(&m);
	sigaddset(&m, SIGUSR1);
	posix_spawnattr_setsigmask(&at, &m);
	sigemptyset(&m);
	sigaddset(&m, SIGUSR2);
	posix_spawnattr_setsigdefault(&at, &m);
	posix_spawnattr_setpgroup(&at, 0);
	posix_spawnattr_setflags(&at, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
	signal(SIGUSR2, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	done("attributes", posix_spawn(&pid, "/bin/grep", NULL, &at, (char *[]){"grep", "^Sig[BIC]", "/proc/self/status", NULL}, env));
	done("attributes group", posix_spawn(&pid, "/bin/sh", NULL, &at, (char *[]){"sh", "-c", "test $(ps -o pgid= -p $$) = $$", NULL}, env));
	posix_spawnattr_setflags(&at, POSIX_SPAWN_SETSID);
	done("session", posix_spawn(&pid, "/bin/sh", NULL, &at, (char *[]){"sh", "-c", "test $(ps -o sid= -p $$) = $$", NULL}, env));
	for (int i = 0; i < 50; i++)
		if (posix_spawn(&pid, "/bin/true", NULL, NULL, (char *[]){"true", NULL}, environ) || waitpid(pid, NULL, 0) != pid)
			printf("lost %d\n", i);
	return 0;
}
