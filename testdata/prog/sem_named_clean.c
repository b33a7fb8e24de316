// A named semaphore hands work from one process to another.
// ripstop: verdict none
#include <fcntl.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
	char name[64];
	snprintf(name, sizeof name, "/ripstop-test-%d", getpid());
	sem_t *s = sem_open(name, O_CREAT | O_EXCL, 0600, 0);
	if (s == SEM_FAILED)
		return 1;
	if (fork() == 0) {
		for (int i = 0; i < 10; i++)
			sem_post(s);
		_exit(0);
	}
	for (int i = 0; i < 10; i++)
		sem_wait(s);
	wait(NULL);
	sem_close(s);
	sem_unlink(name);
	puts("done");
	return 0;
}
