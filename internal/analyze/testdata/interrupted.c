// A loop that touches memory and nothing else is interrupted all the time. Its handler finds it there, with the registers and flags that it has, and what the handler makes of them it goes
// on with. Some of its words were told before, some are told anew each time, one is atomic.
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

enum { TIMES = 500, REGS = 15, FLAGS = 0x8d5, DIRECTION = 0x400 };
extern const char loop[], loop_end[], out[], __executable_start[], etext[];
static uint64_t word[64] __attribute__((used, aligned(64)));
static uint64_t values[REGS], flags = 0x8d5;
static int bad, times;
static atomic_int inside;
static sem_t handled;
static const int regs[REGS] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RBP, REG_RSI, REG_RDI, REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

static void handler(int sig, siginfo_t *info, void *context)
{
	ucontext_t *uc = context;
	greg_t *g = uc->uc_mcontext.gregs;
	(void)sig, (void)info;
	uintptr_t pc = (uintptr_t)g[REG_RIP];
	if (pc < (uintptr_t)loop || pc >= (uintptr_t)loop_end) {
		if (atomic_load(&inside) == 1 && (pc < (uintptr_t)__executable_start || pc >= (uintptr_t)etext) && bad++ < 5)
			fprintf(stderr, "interrupted at %lx\n", (unsigned long)pc);
		sem_post(&handled);
		return;
	}
	for (int i = 0; i < REGS; i++) {
		if ((uint64_t)g[regs[i]] != values[i] && bad++ < 5)
			fprintf(stderr, "register %d is %llx, not %llx, at loop+%lx\n", i, (unsigned long long)g[regs[i]], (unsigned long long)values[i], (unsigned long)(pc - (uintptr_t)loop));
		/* rdi, rsi and rsp are what the loop's addresses are made of. */
		if (regs[i] != REG_RDI && regs[i] != REG_RSI)
			g[regs[i]] = (greg_t)(values[i] = values[i] * 3 + (uint64_t)i);
	}
	if (((uint64_t)g[REG_EFL] & (FLAGS | DIRECTION)) != flags && bad++ < 5)
		fprintf(stderr, "flags are %llx, not %llx, at loop+%lx\n", (unsigned long long)g[REG_EFL], (unsigned long long)flags, (unsigned long)(pc - (uintptr_t)loop));
	flags = (uint64_t)times * 0x9e3779b97f4a7c15ull >> 32 & (FLAGS | DIRECTION);
	g[REG_EFL] = (greg_t)(((uint64_t)g[REG_EFL] & ~(uint64_t)(FLAGS | DIRECTION)) | flags);
	if (++times == TIMES)
		g[REG_RIP] = (greg_t)(uintptr_t)out;
	sem_post(&handled);
}

/* The stack has a red zone's worth of words that the loop uses as a leaf function would. */
__attribute__((noinline)) static void run(void)
{
	for (int i = 0; i < REGS; i++)
		values[i] = 0x1111111111111111ull * (uint64_t)(i + 1);
	values[5] = 5;
	values[6] = (uint64_t)word;
	word[32] = 5;
	__asm__ volatile(
		"	pushq %%rbp\n	pushq %%rbx\n	pushq %%r12\n	pushq %%r13\n	pushq %%r14\n	pushq %%r15\n	subq $256, %%rsp\n"
				"	movq (%%rsi), %%rax\n	movq 8(%%rsi), %%rcx\n	movq 16(%%rsi), %%rdx\n	movq 24(%%rsi), %%rbx\n	movq 32(%%rsi), %%rbp\n"
		"	movq 56(%%rsi), %%r8\n	movq 64(%%rsi), %%r9\n	movq 72(%%rsi), %%r10\n	movq 80(%%rsi), %%r11\n	movq 88(%%rsi), %%r12\n	movq 96(%%rsi), %%r13\n"
		"	movq 104(%%rsi), %%r14\n	movq 112(%%rsi), %%r15\n	movq 40(%%rsi), %%rsi\n"
		"	pushq $0xad7\n	popfq\n" /* ZF, SF, CF, OF, PF, AF and IF */
		".globl loop\nloop:\n"
		"	movq %%rax, (%%rdi)\n"
		"	movb %%cl, 16(%%rdi,%%rsi,4)\n"
		"	.rept 100\n	movw %%dx, -64(%%rsp)\n	movb %%cl, -80(%%rsp)\n	notl -96(%%rsp)\n	movups %%xmm0, -112(%%rsp)\n	movups -112(%%rsp), %%xmm1\n	.endr\n" /* of its own frame */
		"	movl %%ebx, 100(%%rdi)\n"
		"	notl 200(%%rdi)\n"
		"	movb %%cl, 304(%%rdi)\n	movb %%dl, 305(%%rdi)\n	movb %%r8b, 306(%%rdi)\n	notb 307(%%rdi)\n" /* more than a cell's two points */
		"	movups %%xmm0, 128(%%rdi)\n"
		"	xchgq %%rsi, 256(%%rdi)\n"
		"	movq 256(%%rdi), %%rsi\n"
		"	jmp loop\n"
		".globl loop_end\nloop_end:\n"
		".globl out\nout:\n"
		"	cld\n"
		"	addq $256, %%rsp\n	popq %%r15\n	popq %%r14\n	popq %%r13\n	popq %%r12\n	popq %%rbx\n	popq %%rbp\n"
		: : "S"(values), "D"(word) : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "xmm1", "memory", "cc");
}

/* MET: what of the thread's stack the main thread has accessed: 1: what lies above the loop's frame; 2: what lies below. */
#ifndef MET
#define MET 0
#endif
static char *volatile met;
static sem_t looked;

__attribute__((noinline)) static void deeper(void)
{
	char far[1 << 14];
	far[0] = 1;
	met = far;
	__asm__ volatile("" : : "r"(far) : "memory");
}

static void *worker(void *arg)
{
	char near = 1;
	(void)arg;
	if (MET == 1)
		met = &near;
	if (MET == 2)
		deeper();
	sem_post(&handled);
	sem_wait(&looked);
	atomic_store(&inside, 1);
	run();
	atomic_store(&inside, 2);
	sem_post(&handled);
	return NULL;
}

int main(void)
{
	pthread_t t;
	struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	sem_init(&handled, 0, 0);
	sem_init(&looked, 0, 0);
	sigaction(SIGUSR1, &sa, NULL);
	pthread_create(&t, NULL, worker, NULL);
	sem_wait(&handled);
	if (met)
		bad += *met != 1;
	sem_post(&looked);
	for (; atomic_load(&inside) != 2; sem_wait(&handled))
		pthread_kill(t, SIGUSR1);
	pthread_join(t, NULL);
	printf("%d wrong\n", bad);
	return bad != 0;
}
