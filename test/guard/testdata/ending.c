// Threads that end, having allocated and freed, while their process does: nothing is wrong with any block. ending PROCESSES THREADS.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static void *thread(void *arg)
{
	void *p[40];
	for (int i = 0; i < 40; i++)
		p[i] = malloc((size_t)(8 + 24 * i));
	for (int i = 0; i < 40; i++)
		free(p[i]);
	return arg;
}

int main(int argc, char **argv)
{
	int processes = argc > 1 ? atoi(argv[1]) : 1, threads = argc > 2 ? atoi(argv[2]) : 1;
	for (int i = 0; i < processes; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			pthread_t t;
			for (int k = 0; k < threads; k++)
				if (pthread_create(&t, NULL, thread, NULL) == 0)
					pthread_detach(t);
			for (volatile int k = 0; k < 1000 * (i % 50); k++)
				;
			_exit(0);
		}
		int status;
		if (waitpid(pid, &status, 0) != pid || status != 0)
			printf("status %#x\n", status);
	}
	return 0;
}
