/* shutin.c: a sandbox's way with system calls: a filter (seccomp) traps some, and a handler of SIGSYS looks at all it is told, and answers in the kernel's place. Argument t: with threads that make locks and calls meanwhile. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

static __thread struct { int n, code, number; unsigned same, rax; long rdi; } seen;
static __thread long answer;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static volatile int over, begun;

static void handler(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	greg_t *g = uc->uc_mcontext.gregs;
	seen.n++;
	seen.code = info->si_code;
	seen.number = info->si_syscall;
	seen.same = (unsigned long)info->si_call_addr == (unsigned long)g[REG_RIP]; /* as Chromium and Firefox check */
	seen.rax = g[REG_RAX] == info->si_syscall;
	seen.rdi = g[REG_RDI];
	g[REG_RAX] = answer;
	(void)sig;
}

static void say(const char *name, long r)
{
	int e = errno;
	char text[200];
	int n = snprintf(text, sizeof text, "%s: %ld errno %d; handled %d code %d number %d, there %u, rax %u, rdi %ld\n", name, r, r < 0 ? e : 0, seen.n, seen.code, seen.number, seen.same, seen.rax, seen.rdi);
	memset(&seen, 0, sizeof seen);
	if (write(1, text, (size_t)n) != n)
		_exit(1);
}

static void *work(void *arg)
{
	while (!begun)
		usleep(1000);
	while (!over) {
		pthread_mutex_lock(&mutex);
		answer = 0;
		chdir("/nowhere");
		if (seen.n != 1 || !seen.same)
			_exit(3);
		seen.n = 0;
		pthread_mutex_unlock(&mutex);
	}
	return arg;
}

int main(int argc, char **argv)
{
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat, 4, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mkdirat, 3, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mkdir, 2, 0),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_chdir, 1, 0),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
	};
	struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
	struct sigaction a = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_NODEFER};
	pthread_t t[2];
	struct stat st;
	int threads = argc > 1 && argv[1][0] == 't';
	sigaction(SIGSYS, &a, NULL);
	for (int i = 0; threads && i < 2; i++)
		pthread_create(&t[i], NULL, work, NULL);
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program)) {
		perror("seccomp");
		return 2;
	}
	begun = 1;
	answer = 4711;
	say("openat", openat(7, "/nowhere", O_RDONLY));
	answer = -ENOTDIR;
	say("openat fails", openat(8, "/nowhere", O_RDONLY));
	say("mkdirat", mkdirat(9, "/nowhere", 0777));
	answer = 0;
	say("mkdirat done", mkdirat(10, "/nowhere", 0777));
	answer = SYS_openat; /* what rax is already */
	say("unchanged", openat(11, "/nowhere", O_RDONLY));
	say("stat", stat("/", &st));
	for (int i = 0; i < 1000; i++) {
		answer = i;
		if (openat(12, "/nowhere", O_RDONLY) != i)
			return 4;
	}
	over = 1;
	for (int i = 0; threads && i < 2; i++)
		pthread_join(t[i], NULL);
	say("many", 0);
	return 7;
}
