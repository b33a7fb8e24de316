// What a stepped program must be able to do as natively: threads that wait for each other, signals that interrupt, restart and are ignored, children by
// fork, vfork and exec, its own traps, stops.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile sig_atomic_t got[65];
static sigjmp_buf back;
static void note(int s) { got[s]++; }
static void leave(int s) { got[s]++; siglongjmp(back, 1); }

static void on(int s, void (*f)(int), int flags) {
	struct sigaction a = {.sa_handler = f, .sa_flags = flags};
	sigaction(s, &a, 0);
}

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static int turn;
static long sum;

static void *take_turns(void *arg) {
	int me = (int)(long)arg;
	for (int i = 0; i < 5; i++) {
		pthread_mutex_lock(&m);
		while (turn % 3 != me)
			pthread_cond_wait(&c, &m);
		turn++;
		sum = sum * 3 + me;
		pthread_cond_broadcast(&c);
		pthread_mutex_unlock(&m);
	}
	return arg;
}

static void *interrupt(void *arg) {
	(void)arg;
	pthread_kill(*(pthread_t *)arg, SIGUSR1);
	return 0;
}

int main(int argc, char **argv) {
	if (argc > 1) {
		printf("executed %s\n", argv[1]);
		return 5;
	}
	setvbuf(stdout, 0, _IOLBF, 0);
	pthread_t t[3], self = pthread_self();
	for (long i = 0; i < 3; i++)
		pthread_create(&t[i], 0, take_turns, (void *)i);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], 0);
	printf("turns %d sum %ld\n", turn, sum);

	on(SIGUSR1, note, 0);
	on(SIGUSR2, note, SA_RESTART);
	on(SIGWINCH, SIG_IGN, 0);
	raise(SIGUSR1), raise(SIGUSR2), raise(SIGWINCH);
	int p[2];
	char buf[1];
	if (pipe(p))
		return 1;
	pthread_create(&t[0], 0, interrupt, &self); // read ends with EINTR, or the handler ran before it began
	alarm(0);
	if (got[SIGUSR1] < 2) {
		pthread_join(t[0], 0);
	} else
		pthread_join(t[0], 0);
	printf("usr1 %d usr2 %d\n", got[SIGUSR1], got[SIGUSR2]);

	on(SIGALRM, note, SA_RESTART); // a read that is restarted
	pid_t child = fork();
	if (child == 0) {
		for (int i = 0; i < 3; i++)
			kill(getppid(), SIGUSR2);
		if (write(p[1], "x", 1) != 1)
			_exit(1);
		_exit(42);
	}
	int n = (int)read(p[0], buf, 1), st;
	while (waitpid(child, &st, 0) < 0)
		;
	printf("read %d %c child %d restarted %d\n", n, buf[0], WEXITSTATUS(st), got[SIGUSR2] > 1);

	on(SIGSEGV, leave, 0), on(SIGTRAP, note, 0), on(SIGFPE, leave, 0);
	if (sigsetjmp(back, 1) == 0)
		*(volatile int *)8 = 1;
	if (sigsetjmp(back, 1) == 0)
		asm volatile("xorl %%ecx, %%ecx; movl $1, %%eax; cltd; idivl %%ecx" ::: "rax", "rcx", "rdx");
	asm volatile("int3");
	asm volatile("int3");
	kill(getpid(), SIGTRAP);
	printf("segv %d fpe %d trap %d\n", got[SIGSEGV], got[SIGFPE], got[SIGTRAP]);

	if ((child = vfork()) == 0) {
		execl("/proc/self/exe", "manners", "by vfork", (char *)0);
		_exit(9);
	}
	waitpid(child, &st, 0);
	printf("vfork %d\n", WEXITSTATUS(st));
	printf("system %d\n", WEXITSTATUS(system("exit 7")));

	if ((child = fork()) == 0) {
		raise(SIGSTOP);
		_exit(11);
	}
	waitpid(child, &st, WUNTRACED);
	int stopped = WIFSTOPPED(st);
	kill(child, SIGCONT);
	waitpid(child, &st, 0);
	printf("stopped %d then %d\n", stopped, WEXITSTATUS(st));

	if ((child = fork()) == 0) {
		pthread_create(&t[0], 0, take_turns, (void *)(long)(turn % 3)); // exec while another thread waits
		execl("/proc/self/exe", "manners", "with a thread", (char *)0);
		_exit(9);
	}
	waitpid(child, &st, 0);
	printf("exec %d\n", WEXITSTATUS(st));
	if ((child = fork()) == 0)
		abort();
	waitpid(child, &st, 0);
	printf("signal %d\n", WTERMSIG(st));
	return 3;
}
