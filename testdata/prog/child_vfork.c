// A child of vfork and exec does it wrong; its parent is innocent.
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
	pid_t child = vfork();
	if (child == 0) {
		execv(argv[0], args);
		_exit(99);
	}
	waitpid(child, &status, 0);
	printf("child ended with %d\n", WEXITSTATUS(status));
	return 0;
}
