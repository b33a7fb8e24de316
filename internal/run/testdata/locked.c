// Locks of files that were read and closed: what is held when, which is the same in each run. locked FILE.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#define MUST(x) do { if (!(x)) { fprintf(stderr, "locked.c:%d: %s: %m\n", __LINE__, #x); abort(); } } while (0)
static const char *file;

// Some epochs, in which calls are made.
static void pass(void)
{
	struct timespec ms = {0, 1000000};
	for (int i = 0; i < 60; i++)
		nanosleep(&ms, NULL);
}

static int read_by(int fd)
{
	char c[16];
	MUST(fd >= 0 && read(fd, c, sizeof c) == sizeof c);
	return fd;
}

// How many POSIX locks the process has on the descriptor's file.
static int posix_locks(int fd)
{
	char name[64], line[256];
	int n = 0;
	snprintf(name, sizeof name, "/proc/self/fdinfo/%d", fd);
	FILE *f = fopen(name, "r");
	MUST(f);
	while (fgets(line, sizeof line, f))
		n += strstr(line, "POSIX") != NULL;
	fclose(f);
	return n;
}

// Nobody else has a lock that is bound to the file.
static int can(int command)
{
	int fd = open(file, O_RDWR);
	struct flock all = {.l_type = F_WRLCK};
	int r = command == LOCK_EX ? flock(fd, LOCK_EX | LOCK_NB) : fcntl(fd, command, &all);
	close(fd);
	return r == 0;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	file = argv[1];
	setvbuf(stdout, NULL, _IOLBF, 0);
	alarm(60); // who waits for a lock of its own
	if (argc > 2) {
		// From before.
		close(read_by(9));
		printf("inherited: %d\n", can(LOCK_EX));
		return 3;
	}
	for (int i = 0; i < 3; i++) {
		close(read_by(open(file, O_RDONLY)));
		int fd = open(file, O_RDWR);
		struct flock all = {.l_type = F_WRLCK};
		MUST(fd >= 0 && fcntl(fd, i == 1 ? F_SETLKW : F_SETLK, &all) == 0);
		pass();
		printf("posix: %d\n", posix_locks(fd));
		close(fd);

		fd = open(file, O_RDONLY);
		MUST(flock(fd, LOCK_EX) == 0);
		close(read_by(fd));
		printf("flock: %d\n", can(LOCK_EX));

		fd = open(file, O_RDONLY);
		int other = dup(fd);
		MUST(flock(fd, LOCK_SH) == 0);
		read_by(other);
		close(fd);
		printf("flock, duplicated: %d,", can(LOCK_EX));
		close(other);
		printf(" %d\n", can(LOCK_EX));

		struct flock shared = {.l_type = F_RDLCK};
		fd = open(file, O_RDONLY);
		MUST(fcntl(fd, F_OFD_SETLK, &shared) == 0);
		close(read_by(fd));
		printf("of the open file: %d\n", can(F_OFD_SETLK));

		// The lock of a thread that is let go by a close.
		fd = open(file, O_RDONLY);
		MUST(flock(fd, LOCK_EX) == 0);
		MUST(dup2(0, read_by(fd)) == fd);
		printf("flock, by dup2: %d\n", can(LOCK_EX));
		close(fd);
		pass();
	}
	int fd = open(file, O_RDONLY);
	MUST(fd >= 0 && dup2(fd, 9) == 9 && close(fd) == 0 && flock(9, LOCK_EX) == 0);
	char *again[] = {argv[0], argv[1], "again", NULL};
	execv(argv[0], again);
	return 1;
}
