// With --follow=no a child is none of our business.
// ripstop: verdict none
// ripstop: flags --follow=no
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
