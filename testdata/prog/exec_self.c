// A program that becomes itself three times, once with a cleared environment, and then does it wrong.
// ripstop: verdict lock-order-inversion objects=lock_a,lock_b frames=one,two
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "inversion.h"

extern char **environ;

int main(int argc, char **argv)
{
	int stage = argc > 1 ? argv[1][0] - '0' : 0;
	if (stage == 3) {
		invert();
		puts(getenv("STAGE") ? getenv("STAGE") : "nothing");
		return 0;
	}
	char next[2] = {(char)('1' + stage), 0}, *args[] = {argv[0], next, NULL};
	if (stage == 1)
		clearenv();
	else
		setenv("STAGE", next, 1);
	execv("/proc/self/exe", args);
	return 1;
}
