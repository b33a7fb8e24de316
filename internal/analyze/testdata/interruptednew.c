// As interrupted.c, where all accesses are new in the thread's time and made from one stack: a lock is taken and given up before each round of them. A handler finds the registers of the program, and is not to leave
// anything of what it interrupted undone: who waits for that waits for a tenth of a second.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <ucontext.h>

enum { TIMES = 2000, ROUNDS = 200000, WORDS = 256, LATE_MS = 80, LATE = 5 };
extern const char begin[], end[];
static uint64_t word[2 * WORDS] __attribute__((used, aligned(64)));
static atomic_int times, bad;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const int regs[] = {REG_RAX, REG_RBX, REG_RCX, REG_RDX, REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

static void handler(int sig, siginfo_t *info, void *context)
{
	const greg_t *g = ((ucontext_t *)context)->uc_mcontext.gregs;
	(void)sig, (void)info;
	if ((uintptr_t)g[REG_RIP] >= (uintptr_t)begin && (uintptr_t)g[REG_RIP] < (uintptr_t)end) {
		times++;
		for (unsigned i = 0; i < sizeof regs / sizeof *regs; i++)
			if ((uint64_t)g[regs[i]] != 0x1111111111111111ull * (i + 1) && bad++ < 5)
				fprintf(stderr, "register %u is %llx at begin+%lx\n", i, (unsigned long long)g[regs[i]], (unsigned long)((uintptr_t)g[REG_RIP] - (uintptr_t)begin));
		if (((uint64_t)g[REG_RSI] != (uint64_t)word || (g[REG_EFL] & 0xd5) != 0x81 /* SF, CF */) && bad++ < 5)
			fprintf(stderr, "flags are %llx at begin+%lx\n", (unsigned long long)g[REG_EFL], (unsigned long)((uintptr_t)g[REG_RIP] - (uintptr_t)begin));
	}
}

#define STORE(n) "	movq %%rax, 8*" #n "(%%rsi)\n	movl %%ebx, 16*128+8*" #n "(%%rsi)\n	movq 8*" #n "(%%rsi), %%rdi\n	movups %%xmm0, 16*64+12+16*" #n "(%%rsi)\n"
__attribute__((noinline)) static void round_of_them(void)
{
	__asm__ volatile(
		"	movq $0x1111111111111111, %%rax\n	imulq $2, %%rax, %%rbx\n	imulq $3, %%rax, %%rcx\n	imulq $4, %%rax, %%rdx\n	imulq $5, %%rax, %%r8\n	imulq $6, %%rax, %%r9\n"
		"	imulq $7, %%rax, %%r10\n	imulq $8, %%rax, %%r11\n	imulq $9, %%rax, %%r12\n	imulq $10, %%rax, %%r13\n	imulq $11, %%rax, %%r14\n	imulq $12, %%rax, %%r15\n"
		"	movl $0x80, %%edi\n	addb %%dil, %%dil\n	sbbb %%dil, %%dil\n" /* CF, SF, AF, PF: then those that are looked at */
		"	movb $0x81, %%ah\n	sahf\n	movb $0x11, %%ah\n"
		".globl begin\nbegin:\n"
		STORE(0) STORE(1) STORE(2) STORE(3) STORE(4) STORE(5) STORE(6) STORE(7) STORE(8) STORE(9) STORE(10) STORE(11) STORE(12) STORE(13) STORE(14) STORE(15)
		".globl end\nend:\n"
		: : "S"(word) : "rax", "rbx", "rcx", "rdx", "rdi", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc");
}

static pthread_t worker;
static atomic_int over;
static void *sender(void *arg)
{
	while (!over) {
		pthread_kill(worker, SIGUSR1);
		for (int i = 0; i < 2000; i++)
			__asm__ volatile("pause");
	}
	return arg;
}

static void *works(void *arg)
{
	int late = 0;
	for (long i = 0; times < TIMES && i < ROUNDS; i++) {
		struct timespec a, b;
		pthread_mutex_lock(&lock);
		pthread_mutex_unlock(&lock);
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &a); /* what waits in the agent is running */
		round_of_them();
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &b);
		late += (b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 >= LATE_MS;
	}
	bad += late > LATE ? 1000 : 0;
	return arg;
}

int main(void)
{
	pthread_t s;
	struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | SA_RESTART};
	sigaction(SIGUSR1, &sa, NULL);
	pthread_create(&worker, NULL, works, NULL);
	pthread_create(&s, NULL, sender, NULL);
	pthread_join(worker, NULL);
	over = 1;
	pthread_join(s, NULL);
	printf("%d wrong\n", bad);
	return 0;
}
