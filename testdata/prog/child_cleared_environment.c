// A child that is started with an empty environment is watched all the same.
// ripstop: verdict lock-order-inversion objects=lock_a,lock_b frames=one,two
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "inversion.h"

extern char **environ;

int main(int argc, char **argv)
{
	if (argc > 1) {
		invert();
		puts("inverted");
		return 0;
	}
	int status = 0;
	char *args[] = {argv[0], "child", NULL};
	(void)args;
	pid_t child = fork();
	if (child == 0) {
		char *none[] = {NULL};
		execve(argv[0], args, none);
		_exit(99);
	}
	waitpid(child, &status, 0);
	printf("child ended with %d\n", WEXITSTATUS(status));
	return 0;
}
