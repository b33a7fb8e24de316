// A program that maps a semaphore and a barrier which its parent made for both: only one of the two processes ever called the initialisers. Each
// waits for the other, and is not stuck.
// ripstop: verdict none
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct shared {
	sem_t go;
	pthread_barrier_t phase;
};

int main(int argc, char **argv)
{
	if (argc > 1) { /* the other program */
		struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED, atoi(argv[1]), 0);
		sem_wait(&s->go);
		pthread_barrier_wait(&s->phase);
		return 0;
	}
	int fd = memfd_create("shared", 0);
	if (fd < 0 || ftruncate(fd, sizeof(struct shared)) != 0)
		return 1;
	struct shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	pthread_barrierattr_t a;
	pthread_barrierattr_init(&a);
	pthread_barrierattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&s->phase, &a, 2);
	sem_init(&s->go, 1, 0);
	char text[16];
	snprintf(text, sizeof text, "%d", fd);
	pid_t pid = fork();
	if (pid == 0) {
		execl(argv[0], argv[0], text, NULL);
		_exit(127);
	}
	usleep(200 * 1000); /* so that ripstop looks at the child as it waits; native runs would do without */
	sem_post(&s->go);
	usleep(200 * 1000);
	pthread_barrier_wait(&s->phase);
	int status;
	waitpid(pid, &status, 0);
	printf("%d\n", WEXITSTATUS(status));
	return 0;
}
