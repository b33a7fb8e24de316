// A handler that interrupts whatever the thread does forks; the child returns from the handler, goes on with what was interrupted, and ends.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t forks, child;
static void handler(int sig)
{
	(void)sig;
	if (forks >= 100)
		return;
	forks++;
	pid_t pid = _Fork();
	if (pid == 0) {
		child = 1;
		return;
	}
	int st;
	if (waitpid(pid, &st, 0) != pid || st != 7 << 8) {
		static const char bad[] = "child did not end as it should\n";
		if (write(1, bad, sizeof bad - 1) < 0)
			_exit(9);
	}
}
int main(void)
{
	sem_t s;
	sem_init(&s, 0, 0);
	struct sigaction sa = {.sa_handler = handler, .sa_flags = SA_RESTART};
	sigaction(SIGALRM, &sa, NULL);
	struct itimerval every = {{0, 2000}, {0, 2000}};
	setitimer(ITIMER_REAL, &every, NULL);
	int after = 0;
	while (forks < 100 && after < 1000) {
		sem_post(&s);
		sem_trywait(&s);
		if (child)
			after++;
	}
	if (child)
		_exit(7);
	puts("done");
	return 0;
}
