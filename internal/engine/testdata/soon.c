/* soon.c: threads fault at instructions, ask for patches, do not wait for them, and get past the instruction by the agent's help. soon THREADS ROUNDS [PLUGIN]. Without the agent it does without. */
#define _GNU_SOURCE
#include "known.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

/* At each instruction with (%rdi) that lies at a forbidden address first: rdi is set right by the handler. Sums of a, in rax. */
#define BAD "mov %rsi, %rdi\n"
extern char f_begin[], f_end[];
__asm__(".text\n.globl f\n.type f, @function\nf_begin:\nf:	push %rbx\n	push %rbp\n	mov %rcx, %rbp\n	xor %eax, %eax\n	xor %ebx, %ebx\n"
	BAD "add (%rdi), %rax\n"
	BAD "mov 8(%rdi), %rcx\n	add %rcx, %rax\n"
	BAD "addq $1, 16(%rdi)\n"
	BAD "mov 16(%rdi), %ecx\n	add %rcx, %rax\n"
	BAD "movzbl 24(%rdi,%rbx,4), %ecx\n	add %rcx, %rax\n"
	BAD "cmp 24(%rdi), %bl\n	adc $0, %rax\n"
	BAD "movdqu (%rdi), %xmm0\n	movq %xmm0, %rcx\n	add %rcx, %rax\n"
	BAD "lock incq 32(%rdi)\n"
	BAD "xchg %rbx, 40(%rdi)\n	add %rbx, %rax\n	xor %ebx, %ebx\n"
	BAD "movq $7, 40(%rdi)\n"
	BAD "lea 48(%rdi), %rdi\n	mov %rbp, %rcx\n	lea (%rdx), %r8\n	rep stosb\n"
	BAD "mov %rax, (%rdi)\n	mov (%rdi), %rcx\n	cmp %rcx, %rax\n	jne 1f\n"
	BAD "mov 8(%rdi), %ecx\n	add %rcx, %rax\n"
	BAD "push 8(%rdi)\n	pop %rcx\n	add %rcx, %rax\n"
	BAD "call *64(%rdi)\n"
	BAD "add 16(%rdi), %rax\n"
	"1:	pop %rbp\n	pop %rbx\n	ret\nf_end:\n.size f, .-f\n"
	".type g, @function\ng:	add $3, %rax\n	ret\n.size g, .-g\n");
long f(long *good, long *bad, long spare, long strings);
extern char g[];

static int (*soon)(uintptr_t);
static int (*pass)(void *);
static __thread long *mine;
static char *forbidden;
static unsigned long in, under_way, refused, passed, again, left, wrong, strange;
static volatile int stop;

static void fault(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	ucontext_t *uc = context;
	greg_t *r = uc->uc_mcontext.gregs;
	uintptr_t pc = (uintptr_t)r[REG_RIP];
	if (pc < (uintptr_t)f_begin || pc >= (uintptr_t)f_end || (char *)info->si_addr < forbidden || (char *)info->si_addr >= forbidden + 4096)
		_exit(99);
	r[REG_RDI] += (char *)mine - forbidden;
	if (!soon)
		return;
	int e = soon(pc);
	if (e == 0) {
		__atomic_add_fetch(&in, 1, __ATOMIC_RELAXED);
		return;
	}
	if (e == -EINPROGRESS || e == -EAGAIN || e == -ETIMEDOUT)
		__atomic_add_fetch(&under_way, 1, __ATOMIC_RELAXED);
	else
		__atomic_add_fetch(&refused, 1, __ATOMIC_RELAXED);
	int p = pass(uc);
	__atomic_add_fetch(p == 0 ? &passed : p == 1 ? &again : &left, 1, __ATOMIC_RELAXED);
}

/* Interrupts a thread, in a copy, too: it is in the program's own code, or in the agent or libc. */
static void tick(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)info;
	uintptr_t pc = (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
	if (!is_known(pc))
		__atomic_add_fetch(&strange, 1, __ATOMIC_RELAXED);
}

static void *work(void *arg)
{
	long rounds = (long)arg, *memory = mine = calloc(16, sizeof *mine);
	for (long i = 0; i < rounds; i++) {
		memset(memory, 0, 16 * sizeof *memory);
		memory[0] = i;
		memory[1] = 5;
		memory[3] = 9;
		memory[8] = (long)(uintptr_t)g;
		f(memory, (long *)forbidden, 0, 8);
		if (memory[0] != i + 5 + 1 + 9 + 1 + i || memory[2] != 1 || memory[4] != 1 || memory[5] != 7)
			__atomic_add_fetch(&wrong, 1, __ATOMIC_RELAXED);
	}
	free(memory);
	return NULL;
}

static void start(int threads, long rounds)
{
	pthread_t t[64];
	for (int i = 0; i < threads; i++)
		pthread_create(&t[i], NULL, work, (void *)rounds);
	for (int i = 0; i < threads; i++)
		pthread_join(t[i], NULL);
}

/* A library comes and goes between the request and the patch; and a child is made. */
static void between(const char *plugin, int threads, long rounds)
{
	for (int i = 0; i < 5 && soon; i++) {
		void *h = dlopen(plugin, RTLD_NOW);
		char *at = h ? dlsym(h, "plugin") : NULL;
		if (!at)
			_exit(98);
		for (int k = 0; k < 3; k++)
			soon((uintptr_t)at + (uintptr_t)k * 4);
		dlclose(h);
	}
	if (soon)
		soon((uintptr_t)f_begin + 12);
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		work((void *)rounds);
		start(threads, rounds);
		_exit(wrong ? 97 : 0);
	}
	int status;
	waitpid(pid, &status, 0);
	printf("the child ends with %d\n", status);
}

int main(int argc, char **argv)
{
	soon = (int (*)(uintptr_t))dlsym(RTLD_DEFAULT, "ripstop_patch_soon");
	pass = (int (*)(void *))dlsym(RTLD_DEFAULT, "ripstop_patch_pass");
	know();
	int threads = atoi(argv[1]);
	long rounds = atol(argv[2]);
	forbidden = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct sigaction sa = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO};
	sigfillset(&sa.sa_mask);
	sigaction(SIGSEGV, &sa, NULL);
	sa.sa_sigaction = tick;
	sa.sa_flags |= SA_RESTART;
	sigaction(SIGPROF, &sa, NULL);
	struct itimerval often = {{0, 1000}, {0, 1000}};
	setitimer(ITIMER_PROF, &often, NULL);
	if (argc > 3)
		between(argv[3], threads, rounds);
	start(threads, rounds);
	memset(&often, 0, sizeof often);
	setitimer(ITIMER_PROF, &often, NULL);
	printf("wrong %lu, strange %lu\n", wrong, strange);
	if (soon)
		fprintf(stderr, "in %lu, under way %lu, refused %lu; passed %lu, again %lu, left %lu\n", in, under_way, refused, passed, again, left);
	return 0;
}
