// A forked child does it wrong; the parent is innocent and exits with 0.
// ripstop: verdict lock-order-inversion objects=lock_a,lock_b frames=one,two
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "inversion.h"

int main(void)
{
	int status;
	pid_t child = fork();
	if (child == 0) {
		invert();
		_exit(7);
	}
	waitpid(child, &status, 0);
	printf("child ended with %d\n", WEXITSTATUS(status));
	return 0;
}
