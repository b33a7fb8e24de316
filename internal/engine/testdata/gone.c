/* gone.c: has two instructions patched, by an engine that is gone before it answers the second time; then that one faults. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <ucontext.h>

extern char here[], there[];
__asm__(".text\n.globl f\n.type f, @function\nf:\nthere:	mov 0x100(%rdi), %rax\n	ret\n.size f, .-f\n"
	".globl g\n.type g, @function\ng:\nhere:	mov 0x100(%rdi), %rax\n	ret\n.size g, .-g\n");
long f(const char *p);
long g(const char *p);

static sigjmp_buf back;
static volatile uintptr_t rip;

static void handler(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	(void)info;
	rip = (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
	siglongjmp(back, 1);
}

int main(void)
{
	int (*ask)(uintptr_t) = (int (*)(uintptr_t))dlsym(RTLD_DEFAULT, "ripstop_patch_test");
	static long v[33];
	v[32] = 42;
	int r = ask((uintptr_t)there);
	printf("first %d, %ld\n", r, f((char *)v));
	fflush(stdout);
	ask((uintptr_t)here);
	printf("then %s, %ld\n", (unsigned char)*here == 0xe9 ? "changed" : "as it was", g((char *)v));
	struct sigaction sa = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
	sigaction(SIGSEGV, &sa, NULL);
	if (!sigsetjmp(back, 1))
		g(NULL);
	printf("the fault is %s\n", rip == (uintptr_t)here ? "there" : "elsewhere");
	return 0;
}
