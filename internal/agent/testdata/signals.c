/* Prints its state and each signal that it gets: "ready", then one line a signal. Ends with status 7 at SIGTERM. */
#include <signal.h>
#include <stdio.h>

int main(void)
{
	sigset_t set;
	sigfillset(&set);
	sigdelset(&set, SIGTSTP);
	sigdelset(&set, SIGCONT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	setvbuf(stdout, NULL, _IOLBF, 0);
	puts("ready");
	for (;;) {
		int sig;
		if (sigwait(&set, &sig) == 0) {
			printf("signal %d\n", sig);
			if (sig == SIGTERM)
				return 7;
		}
	}
}
