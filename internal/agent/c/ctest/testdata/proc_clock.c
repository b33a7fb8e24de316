/* A program that forbids itself to read the time stamp counter. In `record` the agent did so at the next signal, in the handler: SIGSEGV, for good
 * (stress-ng --sigsegv). */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <x86intrin.h>

static sigjmp_buf back;
static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER;

static void handler(int sig)
{
	(void)sig;
	siglongjmp(back, 1);
}

static void *work(void *arg)
{
	pthread_mutex_lock(&a);
	pthread_mutex_lock(&b);
	free(malloc(100));
	pthread_mutex_unlock(&b);
	pthread_mutex_unlock(&a);
	return arg;
}

int main(void)
{
	struct sigaction sa = {.sa_handler = handler};
	sigaction(SIGSEGV, &sa, NULL);
	work(NULL);
	printf("%d\n", prctl(PR_SET_TSC, PR_TSC_SIGSEGV));
	if (sigsetjmp(back, 1) == 0) {
		__rdtsc();
		puts("read");
	} else {
		puts("refused");
	}
	pthread_t t;
	pthread_create(&t, NULL, work, NULL);
	pthread_join(t, NULL);
	work(NULL);
	pid_t child = fork();
	if (child == 0) {
		work(NULL);
		_exit(3);
	}
	int st;
	waitpid(child, &st, 0);
	printf("child %x\n", st);
	printf("%d\n", prctl(PR_SET_TSC, PR_TSC_ENABLE));
	work(NULL);
	return 4;
}
