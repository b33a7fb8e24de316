// A thread is stepped by the processor's trap flag, and at each instruction of a call in turn the handler forks, and the child goes on from there, and ends; or the handler leaves by siglongjmp ("jump").
#define _GNU_SOURCE
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { TF = 0x100, MOST = 20000 };

static volatile sig_atomic_t left, child, jumps;
static sigjmp_buf behind;
static sem_t other;
static void handler(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)info;
	if (left <= 0 || --left)
		return;
	((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~TF;
	if (jumps)
		siglongjmp(behind, 1);
	pid_t pid = _Fork();
	if (pid == 0) {
		child = 1;
		sem_post(&other);
		return;
	}
	int st;
	if (waitpid(pid, &st, 0) != pid || st != 7 << 8) {
		static const char bad[] = "child did not end as it should\n";
		if (write(1, bad, sizeof bad - 1) < 0)
			_exit(9);
	}
}

int main(int argc, char **argv)
{
	(void)argv;
	jumps = argc > 1;
	sem_t s;
	sem_init(&s, 0, 0);
	sem_init(&other, 0, 0);
	struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	sigaction(SIGTRAP, &sa, NULL);
	sem_post(&s); /* what is done once */
	sem_trywait(&s);
	/* Each second time nothing is stepped: what was left is dealt with then. */
	for (volatile int k = 1, steps = 1; k < MOST; k += steps, steps = !steps) {
		if (sigsetjmp(behind, 1)) {
			sem_post(&other); /* told, whatever was left */
			continue;
		}
		left = steps ? k : 0;
		__asm__ volatile("pushfq\n\torq %0, (%%rsp)\n\tpopfq" : : "r"(steps ? (long)TF : 0) : "memory", "cc");
		sem_post(&s);
		__asm__ volatile("pushfq\n\tandl %0, (%%rsp)\n\tpopfq" : : "i"(~TF) : "memory", "cc");
		if (child) {
			alarm(20);
			for (int i = 0; i < 50; i++) {
				sem_post(&s);
				sem_trywait(&s);
			}
			_exit(7);
		}
		if (steps && left > 0)
			break; /* k is beyond the call's last instruction */
		sem_trywait(&s);
	}
	for (int i = 0; i < 10000 && jumps; i++)
		sem_post(&other);
	puts("done");
	return 0;
}
