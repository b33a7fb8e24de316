// What a process does before it has a second thread, with --full-from=thread: its code is patched when it makes one, whatever has happened until then. Each case ends with the same race, of `shared`, but those at the end of the list.
#define _GNU_SOURCE
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

static volatile long shared, quiet[1000];

static void *adds(void *p)
{
	__asm__ volatile("incq %0" : "+m"(shared)); // a read and a write by one instruction: no atomic is that
	return p;
}

// Nobody runs it: longer than what is patched at a time.
#define TEN(x) x; x; x; x; x; x; x; x; x; x
__attribute__((used, noinline)) static void never(void)
{
	TEN(TEN(TEN(quiet[0]++)));
}

// Its two threads race.
static int race(void)
{
	pthread_t a, b;
	if (pthread_create(&a, NULL, adds, NULL) != 0 || pthread_create(&b, NULL, adds, NULL) != 0)
		return 9;
	pthread_join(a, NULL);
	pthread_join(b, NULL);
	printf("%ld\n", shared);
	return 3;
}

static int in_child(int (*f)(void))
{
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0)
		exit(f());
	int status;
	return waitpid(pid, &status, 0) == pid && WIFEXITED(status) ? WEXITSTATUS(status) : 8;
}

static int grandchild(void) { return in_child(race); }

// SIGTRAP is the program's: blocked, pending, and handled when it is let through, before and after.
static volatile int traps;
static void on_trap(int sig)
{
	(void)sig;
	traps++;
}
static int blocked(void)
{
	sigset_t all, was, now;
	signal(SIGTRAP, on_trap);
	raise(SIGTRAP);
	sigfillset(&all);
	sigprocmask(SIG_BLOCK, &all, &was);
	raise(SIGTRAP);
	int status = race();
	printf("%d\n", traps);
	sigprocmask(SIG_BLOCK, NULL, &now);
	printf("%d\n", sigismember(&now, SIGTRAP));
	sigprocmask(SIG_SETMASK, &was, NULL);
	printf("%d\n", traps);
	return status;
}

// A context on a stack with no room for a signal's frame, made before there were threads, and run then: the kernel puts no frame there.
static ucontext_t back, other;
enum { SMALL = 8192 };
static void run_small(void)
{
	for (int i = 0; i < 1000; i++)
		quiet[i]++;
	swapcontext(&other, &back);
}
static int coroutine(void)
{
	char *small = mmap(NULL, 2 * SMALL, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	mprotect(small, SMALL, PROT_NONE);
	getcontext(&other);
	other.uc_stack.ss_sp = small + SMALL;
	other.uc_stack.ss_size = SMALL;
	other.uc_link = &back;
	makecontext(&other, run_small, 0);
	int status = race();
	swapcontext(&back, &other);
	printf("%ld\n", quiet[999]);
	return status;
}

// From here on it can ask nobody.
static int sandbox(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_socket, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {sizeof code / sizeof *code, code};
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog) != 0)
		return 7;
	return race();
}

static void *in_handler(void *p) { return p; }
static pthread_t made;
static void makes(int sig)
{
	(void)sig;
	pthread_create(&made, NULL, in_handler, NULL);
}
// The second thread is made by a handler, on a stack of its own.
static int handler(void)
{
	stack_t s = {.ss_sp = malloc(256 << 10), .ss_size = 256 << 10};
	sigaltstack(&s, NULL);
	struct sigaction a = {.sa_handler = makes, .sa_flags = SA_ONSTACK};
	sigaction(SIGUSR1, &a, NULL);
	raise(SIGUSR1);
	pthread_join(made, NULL);
	return race();
}

static void *blocks[1000];
static int heap(void)
{
	for (int i = 0; i < 100000; i++) {
		free(blocks[i % 1000]);
		blocks[i % 1000] = memset(malloc((size_t)i % 5000 + 1), i, 1);
	}
	return race();
}

// One thread: nothing is patched.
static int alone(void)
{
	for (int i = 0; i < 1000; i++)
		quiet[i] += i;
	printf("%ld\n", quiet[999]);
	return 3;
}

// The only thread reads what it has freed.
static int freed(void)
{
	long *p = malloc(64);
	p[1] = 5;
	long *volatile gone = p;
	free(p);
	quiet[0] = gone[1];
	return 3;
}

static void *reads(void *p)
{
	quiet[0] = ((volatile long *)p)[1];
	return p;
}
// Freed by the only thread, read by the second.
static int dangling(void)
{
	long *volatile p = calloc(8, sizeof *p);
	long *volatile gone = p;
	free(p);
	pthread_t a;
	return pthread_create(&a, NULL, reads, gone) == 0 && pthread_join(a, NULL) == 0 ? 3 : 9;
}

static volatile int expired;
static void expires(union sigval v)
{
	free(malloc(*(volatile int *)v.sival_ptr + 10));
	shared++;
	expired = 1;
}
// libc makes its thread, with all signals blocked, and so SIGTRAP.
static int timer(void)
{
	static int zero;
	struct sigevent e = {.sigev_notify = SIGEV_THREAD, .sigev_notify_function = expires, .sigev_value = {.sival_ptr = &zero}};
	struct itimerspec soon = {{0, 0}, {0, 1000000}};
	timer_t t;
	if (timer_create(CLOCK_MONOTONIC, &e, &t) != 0 || timer_settime(t, 0, &soon, NULL) != 0)
		return 9;
	while (!expired)
		shared++;
	pthread_t a;
	return pthread_create(&a, NULL, adds, NULL) == 0 && pthread_join(a, NULL) == 0 ? 3 : 9;
}

int main(int argc, char **argv)
{
	const struct { const char *name; int (*f)(void); } cases[] = {{"at-once", race}, {"grandchild", grandchild}, {"blocked", blocked}, {"coroutine", coroutine}, {"sandbox", sandbox}, {"handler", handler}, {"heap", heap},
		{"alone", alone}, {"freed", freed}, {"dangling", dangling}, {"timer", timer}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		if (argc > 1 && strcmp(argv[1], cases[i].name) == 0)
			return cases[i].f();
	return 2;
}
