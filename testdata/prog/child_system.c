// A command that system runs by a shell does it wrong.
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
	char *command;
	if (asprintf(&command, "%s child", argv[0]) < 0)
		return 1;
	status = system(command);
	free(command);
	printf("child ended with %d\n", WEXITSTATUS(status));
	return 0;
}
