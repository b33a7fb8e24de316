/* The exec family: what a child is given, and every failure with its errno, as natively. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char dir[64];
static char *at(const char *name)
{
	static char buf[4][128];
	static int i;
	char *p = buf[i++ % 4];
	snprintf(p, 128, "%s/%s", dir, name);
	return p;
}

static void file(const char *name, const char *text, int mode)
{
	FILE *f = fopen(at(name), "w");
	fputs(text, f);
	fclose(f);
	chmod(at(name), mode);
}

/* Runs what follows in a child and prints how it ended; errno of a failed exec is its status. */
#define CHILD(name) for (int once_ = start(name); once_; once_ = 0, _exit(errno))
static int start(const char *name)
{
	printf("%s: ", name);
	fflush(stdout);
	errno = 0;
	pid_t pid = fork();
	if (pid == 0)
		return 1;
	int st;
	waitpid(pid, &st, 0);
	printf("-> %x\n", st);
	fflush(stdout);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1) {
		for (int i = 0; i < argc; i++)
			printf("[%s]", i ? argv[i] : "self");
		printf("\n");
		for (char **e = environ; *e; e++)
			printf("<%.60s>", *e);
		printf("\n");
		return 7;
	}
	strcpy(dir, "exec.d");
	if (mkdir(dir, 0755) < 0)
		return 1;
	char self[256];
	self[readlink("/proc/self/exe", self, 255)] = 0;
	char *one[] = {"A=1", "B=2", NULL}, *preload[] = {"A=1", "LD_PRELOAD=", "B=2", NULL};
	char *mine[] = {"A=1", "RIPSTOP=x", "LD_PRELOADED=1", NULL}, *none[] = {NULL};
	char *two[] = {"x", "y z", "", NULL};
	file("plain", "echo plain $0 $1; env | grep -c . >/dev/null; exit 3\n", 0755);
	file("script", "#!/bin/sh\necho script $1; exit 4\n", 0755);
	file("nested", "", 0755);
	FILE *f = fopen(at("nested"), "w");
	char cwd[200];
	fprintf(f, "#! %s/%s/script arg\n", getcwd(cwd, sizeof cwd), dir);
	fclose(f);
	file("noexec", "#!/bin/sh\n", 0644);
	file("badinterp", "#!/nonexistent/interp\n", 0755);
	file("garbage", "\177ELFgarbage", 0755);
	file("empty", "", 0755);
	mkdir(at("adir"), 0755);
	symlink("loop", at("loop"));

	CHILD("execve") execve(self, two, one);
	CHILD("execve empty env") execve(self, two, none);
	CHILD("execve null env") execve(self, two, NULL);
	CHILD("execve preload") execve(self, two, preload);
	CHILD("execve alike") execve(self, two, mine);
	environ = one;
	CHILD("execv") execv(self, two);
	CHILD("execl") execl(self, "x", "1", "2", "3", "4", "5", "6", "7", "8", (char *)NULL);
	CHILD("execle") execle(self, "x", "1", (char *)NULL, mine);
	setenv("PATH", "/nonexistent:/usr/bin:/bin", 1);
	CHILD("execvp") execvp("env", (char *[]){"env", "Q=1", NULL});
	CHILD("execvpe") execvpe("env", (char *[]){"env", NULL}, one);
	CHILD("execlp") execlp("env", "env", "Z=9", (char *)NULL);
	CHILD("execlp slash") execlp(self, "x", "slash", (char *)NULL);
	CHILD("fexecve") fexecve(open(self, O_RDONLY), two, one);
	CHILD("fexecve path") fexecve(open(self, O_PATH | O_CLOEXEC), two, one);
	CHILD("fexecve bad") fexecve(-1, two, one);
	CHILD("fexecve closed") fexecve(99, two, one);
	CHILD("fexecve null") fexecve(1, two, NULL);
	CHILD("execveat") execveat(open(dir, O_RDONLY), "script", two, one, 0);
	CHILD("execveat missing") execveat(open(dir, O_RDONLY), "nope", two, one, 0);
	CHILD("raw execve") syscall(SYS_execve, self, two, one);
	CHILD("raw execve missing") syscall(SYS_execve, "/nope", two, one);
	CHILD("raw execveat") syscall(SYS_execveat, AT_FDCWD, self, two, preload, 0);
	CHILD("script") execve(at("script"), two, one);
	CHILD("nested") execve(at("nested"), two, one);
	CHILD("plain execve") execve(at("plain"), two, one);
	CHILD("plain execvp") execvp(at("plain"), two);
	CHILD("plain execlp") execlp(at("plain"), "p", "q", (char *)NULL);
	CHILD("missing") execve(at("missing"), two, one);
	CHILD("missing p") execvp("rs-no-such-program", two);
	CHILD("empty name") execvp("", two);
	CHILD("not executable") execve(at("noexec"), two, one);
	CHILD("not executable p") execvp(at("noexec"), two);
	CHILD("bad interpreter") execve(at("badinterp"), two, one);
	CHILD("garbage") execve(at("garbage"), two, one);
	CHILD("empty file") execve(at("empty"), two, one);
	CHILD("directory") execve(at("adir"), two, one);
	CHILD("loop") execve(at("loop"), two, one);
	CHILD("below a file") execve(at("script/x"), two, one);
	CHILD("null path") execve(NULL, two, one);
	char *big = malloc(3 << 20);
	memset(big, 'x', 3 << 20);
	big[(3 << 20) - 1] = 0;
	CHILD("E2BIG argument") execve(self, (char *[]){"x", big, NULL}, one);
	CHILD("E2BIG variable") execve(self, two, (char *[]){big, NULL});
	/* The last bytes that fit: ours must not be what makes it too long. */
	char *fill[24] = {0};
	for (int i = 0; i < 16; i++) {
		fill[i] = malloc(131072);
		memset(fill[i], 'z', 131071);
		fill[i][131071] = 0;
	}
	int fits = 0;
	for (int step = 65536; step; step /= 2) {
		fill[15][fits + step] = 0;
		pid_t pid = fork();
		if (pid == 0) {
			execve("/bin/true", (char *[]){"true", NULL}, fill);
			_exit(errno);
		}
		int st;
		waitpid(pid, &st, 0);
		fill[15][fits + step] = 'z';
		if (st == 0)
			fits += step;
	}
	printf("fits %d\n", fits);
	/* 40 kB in many variables, and in one. */
	static char vars[2001][24], *many[2002];
	for (int i = 0; i < 2000; i++) {
		sprintf(vars[i], "VARIABLE%d=%08d", i, i);
		many[i] = vars[i];
	}
	CHILD("many variables") execve("/usr/bin/md5sum", (char *[]){"md5sum", "/proc/self/cmdline", NULL}, many);
	CHILD("many variables env") execve("/bin/sh", (char *[]){"sh", "-c", "env | grep VARIABLE | md5sum; env | wc -l", NULL}, many);
	many[1000] = "LD_PRELOAD=";
	CHILD("many variables with preload") execve("/bin/sh", (char *[]){"sh", "-c", "env | grep -v ^_ | md5sum", NULL}, many);
	char *large = malloc(40001 + 8);
	memset(large, 'y', 40008);
	memcpy(large, "LARGE=", 6);
	large[40000] = 0;
	CHILD("large variable") execve("/bin/sh", (char *[]){"sh", "-c", "echo ${#LARGE}; env | wc -c", NULL}, (char *[]){large, NULL});
	CHILD("static") execve("/sbin/ldconfig", (char *[]){"ldconfig", "--version", NULL}, none);
	CHILD("ldd") execve("/usr/bin/ldd", (char *[]){"ldd", "-u", "/bin/true", NULL}, (char *[]){"PATH=/bin:/usr/bin", NULL});
	char cmd[200];
	sprintf(cmd, "rm -rf %s", dir);
	return system(cmd);
}
