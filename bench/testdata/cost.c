// Runs a program and says what it cost: CPU time in µs and peak resident memory in KiB, to a file. Usage: cost FILE PROGRAM [ARGUMENT…]
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	if (argc < 3)
		return 2;
	pid_t child = fork();
	if (child == 0) {
		int null = open("/dev/null", O_WRONLY);
		dup2(null, 1);
		execvp(argv[2], argv + 2);
		_exit(127);
	}
	int status;
	struct rusage r;
	if (child < 0 || wait4(child, &status, 0, &r) != child || status != 0)
		return 1;
	FILE *f = fopen(argv[1], "w");
	if (!f)
		return 1;
	fprintf(f, "%ld %ld\n", (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000000 + r.ru_utime.tv_usec + r.ru_stime.tv_usec, r.ru_maxrss);
	return fclose(f) != 0;
}
