/* What a program's handlers see of calls that are patched. steps: each instruction of some calls, stepped; storm: wherever a timer interrupts, stacks reach main. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <execinfo.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

struct seen { uintptr_t rip; long long regs[3]; long long flags; };
static struct seen log_[20000];
static volatile int count;
static const int which[3] = {REG_RAX, REG_RSI, REG_RDI};

static void stepped(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)info;
	greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
	if (count && log_[count - 1].rip == (uintptr_t)g[REG_RIP])
		return;
	if (count == 20000)
		return;
	struct seen *s = &log_[count];
	s->rip = (uintptr_t)g[REG_RIP];
	for (int i = 0; i < 3; i++)
		s->regs[i] = g[which[i]];
	s->flags = g[REG_EFL] & 0x8d5;
	count++;
}

static inline __attribute__((always_inline)) void stepping(int on)
{
	__asm__ volatile("pushfq\n	andq $~0x9d5, (%%rsp)\n	orq %0, (%%rsp)\n	popfq" : : "r"(on ? 0x100l : 0l) : "cc", "memory");
}

static void show(const char *what)
{
	printf("%s: %d\n", what, count);
	for (int i = 0; i < count; i++) {
		Dl_info d;
		if (!dladdr((void *)log_[i].rip, &d) || !strrchr(d.dli_fname, '/')) {
			d.dli_fname = "/vdso"; /* the dynamic linker knows it by no file */
			d.dli_fbase = (void *)(log_[i].rip & -4096ul);
		}
		printf("%s+%#lx", strrchr(d.dli_fname, '/') + 1, log_[i].rip - (uintptr_t)d.dli_fbase);
		for (int j = 0; j < 3; j++)
			if (log_[i].regs[j] >= -4096 && log_[i].regs[j] < 4096)
				printf(" %lld", log_[i].regs[j]);
			else
				printf(" -");
		printf(" %llx\n", log_[i].flags);
	}
	count = 0;
}

#define STEP(what, call) do { count = 0; stepping(1); call; stepping(0); show(what); } while (0)

static void steps(void)
{
	struct sigaction sa = {.sa_sigaction = stepped, .sa_flags = SA_SIGINFO};
	struct stat st;
	sigaction(SIGTRAP, &sa, NULL);
	/* bind them */
	lseek(-1, 0, 0), access("/", F_OK), umask(022), getpgid(-1), getpriority(77, 1), stat("/", &st), time(NULL);
	STEP("lseek", lseek(-1, 5, 0));
	STEP("access", access("/", F_OK));
	STEP("access, an error", access("/nonexistent", F_OK));
	STEP("umask", umask(022));
	STEP("getpgid", getpgid(-1));
	STEP("getpriority", getpriority(77, 1));
	STEP("stat", stat("/", &st));
}

static volatile long handled, wrong;
static struct { uintptr_t lo, hi; } texts[64];
static int ntexts;
static uintptr_t main_at;

static int module(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size;
	(void)arg;
	if (strstr(info->dlpi_name, "libripstop"))
		return 0;
	for (int i = 0; i < info->dlpi_phnum && ntexts < 64; i++)
		if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X) {
			texts[ntexts].lo = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
			texts[ntexts++].hi = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz;
		}
	return 0;
}

static sigjmp_buf out;

static void interrupted(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)info;
	uintptr_t pc = (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
	int known = 0;
	for (int i = 0; i < ntexts; i++)
		known |= pc - texts[i].lo < texts[i].hi - texts[i].lo;
	void *frames[32];
	int n = backtrace(frames, 32), reached = 0;
	for (int i = 0; i < n; i++)
		reached |= (uintptr_t)frames[i] - main_at < 4096;
	if (!known || !reached) {
		if (!wrong++)
			fprintf(stderr, "at %#lx: known %d, %d frames, main reached %d\n", pc, known, n, reached);
	}
	handled++;
	if (handled % 3 == 0)
		siglongjmp(out, 1);
}

static void storm(void)
{
	struct sigaction sa = {.sa_sigaction = interrupted, .sa_flags = SA_SIGINFO | SA_RESTART};
	void *frame[1];
	backtrace(frame, 1); /* loads libgcc */
	dl_iterate_phdr(module, NULL);
	sigaction(SIGALRM, &sa, NULL);
	struct itimerval often = {{0, 70}, {0, 70}}, never = {{0, 0}, {0, 0}};
	sigsetjmp(out, 1);
	setitimer(ITIMER_REAL, &often, NULL);
	volatile long bad = 0;
	while (handled < 3000) {
		bad += lseek(-1, 5, 0) != -1;
		bad += access("/", F_OK) != 0;
		bad += getpgid(-1) != -1;
		bad += time(NULL) < 1000;
	}
	setitimer(ITIMER_REAL, &never, NULL);
	printf("storm: %ld bad, %ld wrong\n", bad, wrong);
}

/* Cancelled at any moment, in the middle of a trampoline too: cleanup handlers run by unwinding (-fexceptions), from the very instruction. */
static volatile int cleaned, turns;
static void clean(void *arg) { cleaned += *(int *)arg; }

static void *reads(void *arg)
{
	char c;
	int one = 1, fd = *(int *)arg;
	pthread_cleanup_push(clean, &one);
	for (;;) {
		if (pread(fd, &c, 1, 0) != 1)
			abort();
		turns++;
	}
	pthread_cleanup_pop(0);
	return NULL;
}

static void cancel(void)
{
	int fd = open("/proc/self/exe", O_RDONLY), rounds = 1500;
	for (int i = 0; i < rounds; i++) {
		pthread_t t;
		void *value;
		turns = 0;
		if (pthread_create(&t, NULL, reads, &fd) != 0)
			abort();
		while (turns < i % 7)
			;
		for (volatile int j = 0; j < i % 400; j++)
			;
		pthread_cancel(t);
		pthread_join(t, &value);
		if (value != PTHREAD_CANCELED)
			abort();
	}
	printf("cancel: %d of %d cleaned up\n", cleaned, rounds);
}

int main(int argc, char **argv)
{
	main_at = (uintptr_t)main;
	if (argc == 2 && strcmp(argv[1], "cancel") == 0) {
		cancel();
		return 0;
	}
	if (argc == 2 && strcmp(argv[1], "steps") == 0)
		steps();
	else
		storm();
	return 0;
}
