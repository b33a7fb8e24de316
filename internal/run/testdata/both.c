// Files that are open for reading and writing, read, and closed, again and again: who waits for that close is told of it at once. both DIRECTORY.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MUST(x) do { if (!(x)) { fprintf(stderr, "both.c:%d: %s: %m\n", __LINE__, #x); abort(); } } while (0)
enum { ROUNDS = 40, BYTES = 8192 };

static long sum;
static int told;

static void use(const char *directory, int n)
{
	char name[256], text[BYTES];
	snprintf(name, sizeof name, "%s/%d", directory, n);
	memset(text, 'a' + n % 26, sizeof text);
	int fd = open(name, O_CREAT | O_TRUNC | O_RDWR, 0600);
	MUST(fd >= 0 && write(fd, text, sizeof text) == sizeof text);
	MUST(pread(fd, text, 100, 4000) == 100 && lseek(fd, 0, SEEK_SET) == 0 && read(fd, text + 100, 300) == 300);
	char *p = n % 2 ? mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0) : NULL;
	MUST(p != MAP_FAILED && close(fd) == 0);
	char event[512];
	if (!p)
		MUST(read(told, event, sizeof event) >= (long)sizeof(struct inotify_event));
	if (n % 4 < 2)
		MUST(unlink(name) == 0);
	for (int i = 0; i < 400; i++)
		sum += text[i] + (p ? p[20 * i]++ : 0);
	if (p) // which has the file open
		MUST(munmap(p, BYTES) == 0 && read(told, event, sizeof event) >= (long)sizeof(struct inotify_event));
}

int main(int argc, char **argv)
{
	struct timespec ms = {0, 2000000};
	char name[256], text[100];
	MUST(argc == 2 && (told = inotify_init1(IN_NONBLOCK)) >= 0 && inotify_add_watch(told, argv[1], IN_CLOSE_WRITE) >= 0);
	for (int n = 0; n < ROUNDS; n++) {
		use(argv[1], n);
		nanosleep(&ms, NULL);
	}
	// What is open for writing anywhere is not executed.
	snprintf(name, sizeof name, "%s/true", argv[1]);
	int from = open("/bin/true", O_RDONLY), to = open(name, O_CREAT | O_RDWR, 0700);
	MUST(from >= 0 && to >= 0);
	for (long n; (n = sendfile(to, from, NULL, 1 << 20)) > 0;)
		;
	MUST(pread(to, text, sizeof text, 0) == sizeof text && close(to) == 0 && close(from) == 0);
	int status;
	pid_t pid = vfork();
	if (pid == 0) {
		execl(name, name, NULL);
		_exit(9);
	}
	MUST(waitpid(pid, &status, 0) == pid);
	printf("%ld, %d\n", sum, status);
	return 5;
}
