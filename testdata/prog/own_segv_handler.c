// A program with its own SIGSEGV handler on an alternate stack, leaving by siglongjmp while it takes locks.
// ripstop: verdict none
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>
#include "order.h"

#include <setjmp.h>
static char *volatile nowhere = (char *)8;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static sigjmp_buf back;
static char alt[65536];

static void handler(int sig, siginfo_t *info, void *uc)
{
	(void)sig, (void)uc;
	if (info->si_addr != (void *)8)
		_exit(9);
	siglongjmp(back, 1);
}

int main(void)
{
	stack_t ss = {.ss_sp = alt, .ss_size = sizeof alt};
	struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	static int faults, i;
	sigaltstack(&ss, NULL);
	sigaction(SIGSEGV, &sa, NULL);
	for (i = 0; i < 1000; i++) {
		pthread_mutex_lock(&lock);
		if (sigsetjmp(back, 1) == 0)
			*(volatile int *)nowhere = 1;
		else
			faults++;
		pthread_mutex_unlock(&lock);
	}
	printf("%d\n", faults);
	return 0;
}
