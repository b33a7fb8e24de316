/* dispatch.c: system calls that the kernel gives to the program (PR_SET_SYSCALL_USER_DISPATCH), and all that its handler is told of them. Arguments: what range of addresses may call; f: in a forked child; b, d: it ends with SIGSYS blocked, or without a handler. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif
enum { OFF, ON, ALLOW = 0, BLOCK = 1 };

static __thread volatile char selector;
static __thread struct seen { int number, code, arch, n; unsigned long at, rip, rax, rsp, rdi; char was; sigset_t mask; } seen;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static long answer = 4711;
static volatile int shared;

/* The program's own instructions: 'inside' is the range of way "own", 'outside' lies out of all. */
long inside(long n, long a, long b, long c), outside(long n, long a, long b, long c);
extern char inside_at[], inside_end[], outside_at[], restore_at[];
__asm__(".text\n.globl inside, outside\n"
	"inside: movq %rdi,%rax\n movq %rsi,%rdi\n movq %rdx,%rsi\n movq %rcx,%rdx\n syscall\ninside_at: ret\n"
	"restore_at: movl $15,%eax\n syscall\ninside_end: nop\n"
	".skip 64, 0x90\n"
	"outside: movq %rdi,%rax\n movq %rsi,%rdi\n movq %rdx,%rsi\n movq %rcx,%rdx\n syscall\noutside_at: ret\n");

static void handler(int sig, siginfo_t *info, void *context)
{
	char was = selector;
	selector = ALLOW;
	ucontext_t *uc = context;
	seen.was = was;
	seen.n++;
	seen.number = info->si_syscall;
	seen.code = info->si_code;
	seen.arch = (int)info->si_arch;
	seen.at = (unsigned long)info->si_call_addr;
	seen.rip = (unsigned long)uc->uc_mcontext.gregs[REG_RIP];
	seen.rax = (unsigned long)uc->uc_mcontext.gregs[REG_RAX];
	seen.rdi = (unsigned long)uc->uc_mcontext.gregs[REG_RDI];
	seen.mask = uc->uc_sigmask;
	uc->uc_mcontext.gregs[REG_RAX] = answer; /* and the selector stays ALLOW, so that it can go back */
	(void)sig;
}

static void where(unsigned long at)
{
	Dl_info d;
	if (at == (unsigned long)outside_at)
		printf("outside");
	else if (at == (unsigned long)inside_at)
		printf("inside");
	else if (dladdr((void *)at, &d) && d.dli_fname)
		printf("%s %s", strrchr(d.dli_fname, '/') ? strrchr(d.dli_fname, '/') + 1 : d.dli_fname, strstr(d.dli_fname, "libc") && d.dli_sname ? d.dli_sname : "");
	else
		printf("?");
}

static void told(const char *what, long r, int e)
{
	printf("%s: %ld errno %d, %d seen", what, r, e, seen.n);
	if (seen.n) {
		printf(", %d code %d arch %x at ", seen.number, seen.code, seen.arch);
		where(seen.at);
		printf(", rip %s rax %s rdi %lx selector %d mask %d", seen.rip == seen.at ? "there" : "elsewhere", seen.rax == (unsigned long)seen.number ? "number" : "other", seen.rdi < 64 ? seen.rdi : 0, seen.was, sigismember(&seen.mask, SIGUSR1));
	}
	printf("\n");
	fflush(stdout);
	memset((void *)&seen, 0, sizeof seen);
}

#define TRY(what, call) do { long r_; int e_; errno = 0; selector = BLOCK; r_ = (long)(call); e_ = errno; selector = ALLOW; told(what, r_, e_); } while (0)

struct range { unsigned long start, length; };
static int text_of_libc(struct dl_phdr_info *info, size_t size, void *data)
{
	struct range *r = data;
	(void)size;
	if (!strstr(info->dlpi_name, "libc.so"))
		return 0;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X) {
			r->start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
			r->length = info->dlpi_phdr[i].p_memsz;
		}
	return 1;
}

static void *locker(void *arg)
{
	struct range *r = arg;
	if (r && prctl(PR_SET_SYSCALL_USER_DISPATCH, ON, r->start, r->length, &selector))
		perror("prctl");
	for (int i = 0; i < 2000; i++) {
		if (r)
			selector = BLOCK;
		pthread_mutex_lock(&mutex);
		shared++;
		pthread_mutex_unlock(&mutex);
		if (r)
			selector = ALLOW;
	}
	if (r)
		printf("locker: %d seen\n", seen.n);
	return NULL;
}

int main(int argc, char **argv)
{
	const char *way = argc > 1 ? argv[1] : "none";
	struct range r = {0, 0};
	struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	int fds[2];
	if (argc > 2 && *argv[2] == 'f') {
		int status;
		prctl(PR_SET_SYSCALL_USER_DISPATCH, ON, 0, 0, &selector);
		prctl(PR_SET_SYSCALL_USER_DISPATCH, OFF, 0, 0, 0);
		if (fork())
			return wait(&status) < 0 ? 1 : WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
	}
	const pid_t pid = getpid();
	if (pipe2(fds, O_NONBLOCK) || sigaction(SIGSYS, &sa, NULL))
		return 2;
	if (!strcmp(way, "own"))
		r = (struct range){(unsigned long)inside, (unsigned long)(inside_end - (char *)inside)};
	else if (!strcmp(way, "libc"))
		dl_iterate_phdr(text_of_libc, &r);
	else if (!strcmp(way, "half"))
		r = (struct range){0x100000000000, 0x600000000000 - 1};
	printf("bad: %d %d\n", prctl(PR_SET_SYSCALL_USER_DISPATCH, ON, 1, -1L, &selector), errno);
	printf("on: %d\n", prctl(PR_SET_SYSCALL_USER_DISPATCH, ON, r.start, r.length, strcmp(way, "always") ? &selector : NULL));
	fflush(stdout);
	TRY("getppid raw outside", outside(SYS_getppid, 1, 2, 3) == answer);
	TRY("getpid raw inside", inside(SYS_getpid, 1, 2, 3) == pid);
	TRY("syscall getppid", syscall(SYS_getppid, 1, 2, 3) == answer);
	TRY("syscall 9999", syscall(9999, 7, 2, 3));
	TRY("getppid", getppid() == answer);
	TRY("write", write(fds[1], "hello", 5));
	TRY("syscall write", syscall(SYS_write, fds[1], "hello", 5));
	answer = -EPERM;
	TRY("syscall kill", syscall(SYS_kill, pid, 0));
	TRY("kill", kill(pid, 0));
	TRY("prctl", prctl(PR_SET_NAME, "other"));
	TRY("syscall futex", syscall(SYS_futex, &shared, 1, 1, 0, 0, 0));
	TRY("usleep", usleep(1000));
	TRY("mmap", (long)mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == -1);
	TRY("malloc", malloc(100) != NULL);
	answer = 4711;
	if (strcmp(way, "libc") == 0) {
		pthread_t t;
		pid_t child;
		char *p = NULL;
		int status = 0, r1;
		TRY("pthread_create", pthread_create(&t, NULL, locker, NULL));
		TRY("lock", locker(NULL) != NULL);
		TRY("pthread_join", pthread_join(t, NULL));
		TRY("many", ({ for (int i = 0; i < 3000; i++) { free(p); p = malloc(100000 + 50 * i); } p != NULL; }));
		TRY("system", system("exit 7"));
		TRY("posix_spawn", posix_spawn(&child, "/bin/true", NULL, NULL, (char *[]){"true", NULL}, NULL));
		TRY("waitpid", waitpid(child, &status, 0) == child);
		selector = BLOCK;
		child = vfork();
		if (child == 0)
			_exit(5);
		selector = ALLOW;
		told("vfork", child > 0, 0);
		TRY("waitpid", waitpid(child, &status, 0) == child);
		printf("status %x\n", status);
		selector = BLOCK;
		child = fork();
		if (child == 0)
			_exit(getppid() > 0 ? 9 : 1);
		r1 = child > 0;
		selector = ALLOW;
		told("fork", r1, 0);
		TRY("waitpid", waitpid(child, &status, 0) == child);
		printf("status %x\n", status);
	}
	pthread_t t[2];
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, locker, strcmp(way, "libc") ? NULL : &r);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	/* A handler that goes back by an instruction of the range with the selector at BLOCK. */
	selector = BLOCK;
	long at = inside(SYS_getpid, 0, 0, 0);
	selector = ALLOW;
	told("inside", at == pid || at == 4711, 0);
	printf("off: %d\n", prctl(PR_SET_SYSCALL_USER_DISPATCH, OFF, 0, 0, 0));
	selector = BLOCK;
	TRY("off", outside(SYS_getpid, 0, 0, 0) == pid);
	char buffer[64];
	printf("read %zd, shared %d\n", read(fds[0], buffer, sizeof buffer), shared);
	/* SIGSYS blocked: it ends. */
	fflush(stdout);
	if (argc > 2 && *argv[2] != 'f') {
		sigset_t s;
		prctl(PR_SET_SYSCALL_USER_DISPATCH, ON, 0, 0, &selector);
		sigemptyset(&s);
		sigaddset(&s, SIGSYS);
		if (*argv[2] == 'b')
			sigprocmask(SIG_BLOCK, &s, NULL);
		else
			signal(SIGSYS, SIG_DFL);
		selector = BLOCK;
		getppid();
		return 5;
	}
	return 3;
}
