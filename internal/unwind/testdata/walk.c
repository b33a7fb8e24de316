/* Threads that stand still in stacks of many shapes. Each waits in pause() or in a loop at the end of its chain of calls; "ready" is
 * printed when all are there. */
#define _GNU_SOURCE
#include <alloca.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))
static atomic_int arrived;
static volatile int sink, never;

/* What stands here is at the end of its stack. */
static NOINLINE void stand(void)
{
	arrived++;
	while (!never)
		pause();
}

static NOINLINE int leaf_spin(volatile int *p)
{
	arrived++;
	while (!*p)
		;
	return *p;
}

static NOINLINE int plain(int n) { stand(); return n + 1; }
static NOINLINE int big_frame(int n) { char b[20000]; memset(b, n, sizeof b); int r = plain(n); return r + b[n]; }
static NOINLINE int with_alloca(int n) { char *p = alloca(n * 16 + 1); memset(p, 1, n * 16); int r = big_frame(n); return r + p[n]; }
static NOINLINE int with_vla(int n) { char b[n * 8 + 1]; memset(b, 1, sizeof b); int r = with_alloca(n); return r + b[n]; }
static NOINLINE int recurse(int n) { return n == 0 ? with_vla(5) : recurse(n - 1) + n; }

/* The stack is realigned: the CFA is found through a saved pointer. */
static NOINLINE int realigned(int n)
{
	char b[64] __attribute__((aligned(64)));
	memset(b, n, sizeof b);
	int r = recurse(n);
	return r + b[n];
}
static NOINLINE int realigned_vla(int n)
{
	char b[128] __attribute__((aligned(128))), v[n * 4 + 1];
	memset(b, n, sizeof b);
	memset(v, n, sizeof v);
	int r = realigned(n);
	return r + b[n] + v[n];
}
/* Many arguments on the stack, all callee-saved registers in use. */
static NOINLINE int many(int a, int b, int c, int d, int e, int f, int g, int h, int i, int j)
{
	int r = realigned_vla(3);
	return r + a + b * c + d * e + f * g + h * i + j;
}
static int compare(const void *a, const void *b) { (void)a; (void)b; return many(1, 2, 3, 4, 5, 6, 7, 8, 9, 10); }
static NOINLINE int through_libc(void) { int v[2] = {2, 1}; qsort(v, 2, sizeof *v, compare); return v[0]; }

/* A call as the last instruction of a function that does not return: the return address lies behind it. */
static NOINLINE __attribute__((noreturn)) void never_returns(void) { stand(); for (;;) sink++; }
static NOINLINE __attribute__((noreturn)) void calls_noreturn(int n) { sink = n; never_returns(); }

static void on_signal(int s, siginfo_t *i, void *u) { (void)i; (void)u; sink = s; stand(); }

/* The instruction that faults is the first of its function. */
NOINLINE int faults(int *p);
__asm__(".text\n.p2align 4\n.globl faults\n.type faults, @function\nfaults:\n.cfi_startproc\nmovl (%rdi), %eax\nret\n.cfi_endproc\n.size faults, .-faults\n");

/* rbp is used for something else, the CFA is known by another register for a while, and the stack pointer is moved to a buffer. */
int odd(void (*f)(void));
__asm__(".text\n.p2align 4\n.globl odd\n.type odd, @function\nodd:\n.cfi_startproc\n"
	"push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbx, 0\n"
	"push %rbp\n.cfi_adjust_cfa_offset 8\n.cfi_rel_offset %rbp, 0\n"
	"mov %rsp, %rbx\n.cfi_def_cfa_register %rbx\n"
	"xor %ebp, %ebp\n"
	"sub $200, %rsp\nand $-64, %rsp\n"
	"call *%rdi\n"
	"mov %rbx, %rsp\n.cfi_def_cfa_register %rsp\n"
	"pop %rbp\n.cfi_adjust_cfa_offset -8\n.cfi_restore %rbp\n"
	"pop %rbx\n.cfi_adjust_cfa_offset -8\n.cfi_restore %rbx\n"
	"xor %eax, %eax\nret\n.cfi_endproc\n.size odd, .-odd\n");
/* As OpenSSL does it: the old stack pointer is stored on a realigned stack, and the CFA is *(rsp+40)+8. */
int stored(void (*f)(void));
__asm__(".text\n.p2align 4\n.globl stored\n.type stored, @function\nstored:\n.cfi_startproc\n"
	"mov %rsp, %rax\n.cfi_def_cfa_register %rax\n"
	"push %rbp\n.cfi_offset %rbp, -16\n"
	"mov %rdi, %r8\nsub $104, %rsp\nand $-64, %rsp\nmov %rax, 40(%rsp)\n"
	".cfi_escape 0x0f, 5, 0x77, 40, 0x06, 0x23, 8\n"
	"mov $7, %ebp\ncall *%r8\n"
	"mov 40(%rsp), %rsi\n.cfi_def_cfa %rsi, 8\n"
	"mov -8(%rsi), %rbp\n.cfi_restore %rbp\nmov %rsi, %rsp\n.cfi_def_cfa_register %rsp\n"
	"xor %eax, %eax\nret\n.cfi_endproc\n.size stored, .-stored\n");

static NOINLINE int use_rbx(int n) { int r = sink * n; odd(stand); return r + n; }
static NOINLINE int use_stored(int n) { int r = sink * n; stored(stand); return r + n; }

static void *t_libc(void *a) { (void)a; sink = through_libc(); return 0; }
static void *t_noreturn(void *a) { (void)a; calls_noreturn(3); }
static void *t_spin(void *a) { (void)a; sink = leaf_spin(&never); return 0; }
static void *t_odd(void *a) { (void)a; sink = use_rbx(4); return 0; }
static void *t_stored(void *a) { (void)a; sink = use_stored(4); return 0; }
static void *t_raise(void *a) { (void)a; raise(SIGUSR1); return 0; }
static void *t_fault(void *a) { sink = faults(a); return 0; }
static void *t_altstack(void *a)
{
	(void)a;
	stack_t s = {.ss_sp = mmap(0, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), .ss_size = 65536};
	sigaltstack(&s, 0);
	raise(SIGUSR2);
	return 0;
}

int main(void)
{
	struct sigaction sa = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO};
	sigaction(SIGUSR1, &sa, 0);
	sigaction(SIGSEGV, &sa, 0);
	sa.sa_flags |= SA_ONSTACK;
	sigaction(SIGUSR2, &sa, 0);
	void *(*fs[])(void *) = {t_libc, t_noreturn, t_spin, t_odd, t_stored, t_raise, t_fault, t_altstack};
	int n = sizeof fs / sizeof *fs;
	for (int i = 0; i < n; i++) {
		pthread_t t;
		pthread_create(&t, 0, fs[i], 0);
	}
	while (arrived < n)
		usleep(1000);
	puts("ready");
	fflush(stdout);
	stand();
}
