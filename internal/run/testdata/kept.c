// Files that are read, mapped, closed and unlinked, again and again, and which descriptors there are meanwhile: nobody but the program has any. kept DIRECTORY.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define MUST(x) do { if (!(x)) { fprintf(stderr, "kept.c:%d: %s: %m\n", __LINE__, #x); abort(); } } while (0)
enum { LIMIT = 200, HIGH = 64, FILES = 8, BYTES = 8192 };

static long sum;

static void use(const char *directory, int n)
{
	char name[256], text[BYTES], rest[16];
	snprintf(name, sizeof name, "%s/%d", directory, n);
	memset(text, 'a' + n, sizeof text);
	int fd = open(name, O_CREAT | O_TRUNC | O_WRONLY, 0600);
	MUST(fd >= 0 && write(fd, text, sizeof text) == sizeof text && close(fd) == 0);
	fd = open(name, O_RDONLY);
	struct iovec pieces[] = {{text + 100, 20}, {rest, sizeof rest}};
	MUST(fd >= 0 && read(fd, text, 100) == 100 && preadv(fd, pieces, 2, 4000) == 36);
	char *p = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
	MUST(p != MAP_FAILED && close(fd) == 0 && unlink(name) == 0);
	p[1]++;
	for (int i = 0; i < 120; i++)
		sum += text[i] + p[64 * i];
	sum += rest[3];
	munmap(p, BYTES);
}

static void look(const char *when)
{
	printf("%s: numbers", when);
	for (int fd = 0; fd < LIMIT; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			printf(" %d", fd);
	DIR *d = opendir("/proc/self/fd");
	int n = 0;
	while (readdir(d))
		n++;
	closedir(d);
	printf("; listed %d\n", n);
}

int main(int argc, char **argv)
{
	struct rlimit limit = {LIMIT, LIMIT};
	struct timespec ms = {0, 1000000};
	int null = open("/dev/null", O_RDONLY);
	MUST(argc == 2 && null >= 0 && setrlimit(RLIMIT_NOFILE, &limit) == 0);
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (int round = 0; round < 12; round++) {
		for (int i = 0; i < FILES; i++)
			use(argv[1], i);
		look("read");
		// What is put at a number stays there.
		for (int fd = LIMIT - HIGH; fd < LIMIT; fd++)
			MUST(round % 2 ? fcntl(null, F_DUPFD, fd) == fd : dup2(null, fd) == fd);
		for (int i = 0; i < 30; i++)
			nanosleep(&ms, NULL);
		look("put there");
		for (int fd = LIMIT - HIGH; fd < LIMIT; fd++)
			MUST(close(fd) == 0);
		for (int i = 0; i < FILES; i++)
			use(argv[1], i);
		// Those of the closed files among them.
		MUST(close_range(LIMIT - HIGH, LIMIT, 0) == 0);
		for (int i = 0; i < 10; i++)
			nanosleep(&ms, NULL);
	}
	printf("%ld\n", sum);
	return 4;
}
