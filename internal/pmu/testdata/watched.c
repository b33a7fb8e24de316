// Two threads and then a child process, all working in one array; the program prints where it is.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static long *array;

static void *work(void *arg) {
	unsigned s = (unsigned)(long)arg + 1;
	for (long i = 0; i < 150000000; i++) {
		s = s * 1103515245 + 12345;
		array[s >> 14 & 15] += s;
	}
	return 0;
}

int main(void) {
	pthread_t t[2];
	array = calloc(16, sizeof *array);
	printf("%p\n", (void *)array);
	fflush(stdout);
	for (long i = 0; i < 2; i++)
		pthread_create(&t[i], 0, work, (void *)i);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], 0);
	pid_t child = fork();
	if (child == 0) {
		work(0);
		_exit(5);
	}
	int status;
	waitpid(child, &status, 0);
	return WEXITSTATUS(status);
}
