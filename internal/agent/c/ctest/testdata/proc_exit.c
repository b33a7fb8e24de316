/* Every way to end: status, order of handlers, output flushed or not. Each runs in a child. */
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void h1(void) { printf("h1 "); }
static void h2(void) { printf("h2 "); atexit(h1); }
static void on(int st, void *p) { printf("on(%d,%s) ", st, (char *)p); }
static void q1(void) { fprintf(stderr, "q1 "); }
static void q2(void) { fprintf(stderr, "q2 "); }
static void calls_exit(void) { printf("again "); exit(9); }
static void *thread(void *p) { exit((int)(long)p); }
static void *waits(void *p) { pause(); return p; }
static jmp_buf jb;
static void on_abort(int s) { (void)s; siglongjmp(jb, 1); }
__attribute__((destructor)) static void fini(void) { printf("fini\n"); }

static void run(const char *name, int n)
{
	fprintf(stderr, "%s: ", name);
	pid_t pid = fork();
	if (pid == 0) {
		pthread_t t;
		switch (n) {
		case 0: atexit(h1); atexit(h2); on_exit(on, "x"); exit(3);
		case 1: _exit(0x1234);
		case 2: _Exit(5);
		case 3: at_quick_exit(q1); at_quick_exit(q2); atexit(h1); quick_exit(6);
		case 4: abort();
		case 5: atexit(calls_exit); on_exit(on, "y"); exit(1);
		case 6: pthread_create(&t, NULL, thread, (void *)8); pause();
		case 7: syscall(SYS_exit_group, 10);
		case 8: pthread_create(&t, NULL, waits, NULL); usleep(10000); exit(11);
		case 9: signal(SIGABRT, on_abort); if (sigsetjmp(jb, 1) == 0) abort(); exit(12);
		case 10: signal(SIGABRT, SIG_IGN); abort();
		case 11: raise(SIGKILL);
		case 12: atexit(h1); for (int i = 0; i < 300; i++) on_exit(i % 100 ? (void (*)(int, void *))(void *)getpid : on, "z"); exit(256 + 13);
		case 13: pthread_create(&t, NULL, waits, NULL); pthread_cancel(t); pthread_join(t, NULL); pthread_exit(NULL);
		}
	}
	int st;
	waitpid(pid, &st, 0);
	fprintf(stderr, "-> %x\n", st & 0xff7f);
}

int main(void)
{
	struct rlimit none = {0, 0};
	setrlimit(RLIMIT_CORE, &none);
	dup2(1, 2);
	static const char *names[] = {"exit", "_exit", "_Exit", "quick_exit", "abort", "exit in handler", "exit in thread", "exit_group", "exit beside thread",
		"abort left", "abort ignored", "kill", "many handlers", "pthread_exit of main"};
	for (int i = 0; i < 14; i++)
		run(names[i], i);
	atexit(h1);
	return 42;
}
