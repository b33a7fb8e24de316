// A program whose memory is watched by protection keys, and what of the kernel and of signals it sees: its own SIGSEGV and that of its children, masks that block it, handlers that touch watched memory, one on
// a stack there, system calls on buffers there, memory that it closes, and forks, whose children and parents must not see each other's writes.
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 1 << 20, THREADS = 3 };

static sigjmp_buf away;
static long *a;
static volatile int handled;
static volatile int *volatile nowhere = (volatile int *)8;

static void fault(int sig, siginfo_t *info, void *context)
{
	(void)context;
	printf("signal %d, code %d, at 8: %d\n", sig, info->si_code, info->si_addr == (void *)8);
	a[3]++;
	siglongjmp(away, 1);
}

static void count(int sig)
{
	(void)sig;
	handled++;
	a[10 + handled]++;
}

static void *thread(void *arg)
{
	long *own = malloc(BYTES);
	for (int i = 0; i < 1000; i++)
		own[i] = (long)arg;
	long n = own[7] + own[999];
	free(own);
	return (void *)n;
}

static int ended(pid_t child)
{
	int status = 0;
	if (child < 0 || waitpid(child, &status, 0) != child)
		abort();
	return WIFSIGNALED(status) ? 1000 + WTERMSIG(status) : WEXITSTATUS(status);
}

int main(void)
{
	struct sigaction sa = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO}, old;
	a = calloc(1, BYTES);
	a[7] = 1;
	sigaction(SIGSEGV, NULL, &old);
	printf("default: %d\n", old.sa_handler == SIG_DFL);
	sigaction(SIGSEGV, &sa, NULL);
	sigaction(SIGSEGV, NULL, &old);
	printf("mine: %d, flags %x\n", old.sa_sigaction == fault, (unsigned)old.sa_flags & 0xff);
	for (int i = 0; i < 3; i++)
		if (!sigsetjmp(away, 1))
			*nowhere = 1;
	printf("%ld\n", a[3]);
	signal(SIGSEGV, SIG_DFL);

	struct sigaction counts = {.sa_handler = count};
	sigfillset(&counts.sa_mask);
	sigaction(SIGUSR1, &counts, NULL);
	raise(SIGUSR1);
	sigset_t set, was;
	sigfillset(&set);
	sigprocmask(SIG_BLOCK, &set, NULL);
	a[50]++;
	sigprocmask(SIG_SETMASK, NULL, &was);
	printf("blocked: %d\n", sigismember(&was, SIGSEGV));
	sigemptyset(&set);
	sigprocmask(SIG_SETMASK, &set, NULL);

	pthread_t t[THREADS];
	long sum = 0;
	for (long i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, thread, (void *)(i + 1));
	for (int i = 0; i < THREADS; i++) {
		void *n;
		pthread_join(t[i], &n);
		sum += (long)n;
	}
	int fd[2];
	if (pipe(fd) != 0)
		abort();
	a[200] = 77;
	if (write(fd[1], &a[200], 8) != 8 || read(fd[0], &a[300], 8) != 8)
		abort();
	printf("%ld %ld\n", sum, a[300]);

	stack_t stack = {.ss_sp = malloc(1 << 17), .ss_size = 1 << 17};
	sigaltstack(&stack, NULL);
	counts.sa_flags = SA_ONSTACK;
	sigaction(SIGUSR1, &counts, NULL);
	raise(SIGUSR1);
	printf("handled: %d, %ld %ld\n", handled, a[11], a[12]);

	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		a[0] = 5;
		_exit(a[200] == 77 && a[300] == 77 ? (int)a[0] : 99);
	}
	printf("child %d, parent's %ld\n", ended(child), a[0]);
	fflush(stdout);
	if ((child = fork()) == 0)
		*nowhere = 1;
	printf("child %d\n", ended(child));
	fflush(stdout);
	if ((child = fork()) == 0) {
		mprotect((void *)(((unsigned long)a + 4095) & -4096ul), 4096, PROT_READ);
		*(volatile long *)(((unsigned long)a + 4095) & -4096ul) = 1;
	}
	printf("child %d\n", ended(child));
	fflush(stdout);
	if ((child = fork()) == 0)
		kill(getpid(), SIGSEGV);
	printf("child %d\n", ended(child));
	return 0;
}
