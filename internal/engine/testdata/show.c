/* show.c: what a handler sees of threads that it interrupts, in code that is patched all over: instruction pointers of the program, registers as they are there, stacks that lead
 * to main; faults at the instruction that faults, which goes on when the handler has mended it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <link.h>
#include <pthread.h>
#include <setjmp.h>
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

static volatile sig_atomic_t ticks, strange, inside, short_stacks;
static uintptr_t text[64][2];
static int texts;

static int look(struct dl_phdr_info *info, size_t size, void *arg)
{
	(void)size, (void)arg;
	for (int i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_LOAD && info->dlpi_phdr[i].p_flags & PF_X && texts < 64) {
			text[texts][0] = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
			text[texts][1] = text[texts][0] + info->dlpi_phdr[i].p_memsz;
			texts++;
		}
	return 0;
}

static int known(uintptr_t pc)
{
	for (int i = 0; i < texts; i++)
		if (pc >= text[i][0] && pc < text[i][1])
			return 1;
	return 0;
}

extern char spin_begin[], spin_end[];
/* r12 counts the rounds in steps of 2; between the two halves of a round memory and rbx say how far it is. */
__asm__(".text\n.globl spin\n.type spin, @function\nspin:\n.cfi_startproc\n"
	"	push %rbx\n.cfi_adjust_cfa_offset 8\n.cfi_offset %rbx, -16\n"
	"	push %r12\n.cfi_adjust_cfa_offset 8\n.cfi_offset %r12, -24\n"
	"	xor %r12d, %r12d\n"
	"spin_begin:\n"
	"1:	mov (%rdi), %rbx\n"
	"	cmp $5, %rbx\n"
	"	jne 2f\n"
	"	mov %r12, 8(%rdi)\n"
	"	add $2, %r12\n"
	"	add (%rdi), %r12\n"
	"	sub $5, %r12\n"
	"	cmp $0, 16(%rdi)\n"
	"	je 1b\n"
	"2:	mov 8(%rdi), %rax\n"
	"spin_end:\n"
	"	pop %r12\n.cfi_adjust_cfa_offset -8\n.cfi_restore %r12\n"
	"	pop %rbx\n.cfi_adjust_cfa_offset -8\n.cfi_restore %rbx\n"
	"	ret\n.cfi_endproc\n.size spin, .-spin\n");
long spin(volatile long *p);

static volatile long shared[8] = {5, 0, 0};

static void tick(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)info;
	ucontext_t *uc = context;
	greg_t *g = uc->uc_mcontext.gregs;
	uintptr_t pc = (uintptr_t)g[REG_RIP];
	ticks++;
	if (!known(pc))
		strange++;
	if (pc >= (uintptr_t)spin_begin && pc < (uintptr_t)spin_end) {
		inside++;
		/* registers of the very place */
		if ((volatile long *)g[REG_RDI] != shared || (g[REG_RBX] != 5 && pc != (uintptr_t)spin_begin))
			strange++;
		void *frames[32];
		int n = backtrace(frames, 32), in_main = 0;
		extern int main(void);
		for (int i = 0; i < n; i++)
			if ((uintptr_t)frames[i] >= (uintptr_t)main && (uintptr_t)frames[i] < (uintptr_t)main + 4096)
				in_main = 1;
		if (!in_main)
			short_stacks++;
	}
}

/* --- faults ------------------------------------------------------------------------------------------------------------------ */

static char *page;
static volatile sig_atomic_t faults, wrong_place;
extern char load_at[], store_at[], load_next[];
__asm__(".text\n.globl poke\n.type poke, @function\npoke:\n.cfi_startproc\n"
	"load_at:	mov (%rdi), %rax\n"
	"load_next:	add $1, %rax\n"
	"store_at:	mov %rax, 8(%rdi)\n"
	"	ret\n.cfi_endproc\n.size poke, .-poke\n");
long poke(void *p);

static void mend(int sig, siginfo_t *info, void *context)
{
	(void)sig;
	ucontext_t *uc = context;
	uintptr_t pc = (uintptr_t)uc->uc_mcontext.gregs[REG_RIP];
	faults++;
	if (info->si_addr == page ? pc != (uintptr_t)load_at : info->si_addr != page + 8 || pc != (uintptr_t)store_at)
		wrong_place++;
	mprotect(page, 4096, info->si_addr == page ? PROT_READ : PROT_READ | PROT_WRITE);
}

static sigjmp_buf out;
static void jump(int sig) { siglongjmp(out, sig); }

static void skip(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)info;
	ucontext_t *uc = context;
	faults++;
	if ((uintptr_t)uc->uc_mcontext.gregs[REG_RIP] != (uintptr_t)load_at)
		wrong_place++;
	uc->uc_mcontext.gregs[REG_RAX] = 41;
	uc->uc_mcontext.gregs[REG_RIP] = (greg_t)load_next;
	mprotect(page, 4096, PROT_READ | PROT_WRITE);
}

static void on(int sig, void (*f)(int, siginfo_t *, void *), int flags)
{
	struct sigaction sa = {.sa_sigaction = f, .sa_flags = SA_SIGINFO | flags};
	sigaction(sig, &sa, NULL);
}

static volatile int cancelled;
static void cleanup(void *arg) { (void)arg, cancelled = 1; }
static void *spinner(void *arg)
{
	pthread_cleanup_push(cleanup, NULL);
	pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL);
	*(volatile int *)arg = 1;
	spin(shared);
	pthread_cleanup_pop(0);
	return NULL;
}

int main(void)
{
	dl_iterate_phdr(look, NULL);
	void *warm[4];
	backtrace(warm, 4);
	on(SIGALRM, tick, SA_RESTART);
	struct itimerval it = {{0, 1000}, {0, 1000}};
	setitimer(ITIMER_REAL, &it, NULL);
	pthread_t main_thread = pthread_self();
	(void)main_thread;
	/* ends when a handler has seen enough */
	static char stack[1 << 16];
	stack_t ss = {.ss_sp = stack, .ss_size = sizeof stack};
	sigaltstack(&ss, NULL);
	for (int round = 0; round < 200 || ticks < 200 || (!inside && ticks < 20000); round++) {
		shared[2] = 0;
		if (round == 50)
			on(SIGALRM, tick, SA_ONSTACK | SA_RESTART);
		for (int i = 0; i < 2000; i++) {
			shared[2] = 1; /* one round a call */
			if (spin(shared) != 0)
				return printf("wrong result\n"), 1;
		}
	}
	it = (struct itimerval){{0, 0}, {0, 0}};
	setitimer(ITIMER_REAL, &it, NULL);
	printf("strange %d, short stacks %d, %s\n", strange, short_stacks, inside ? "seen inside" : "never inside");

	page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	on(SIGSEGV, mend, 0);
	long r = poke(page);
	printf("poke %ld, %ld, faults %d, wrong %d\n", r, ((long *)page)[1], faults, wrong_place);
	mprotect(page, 4096, PROT_NONE);
	on(SIGSEGV, skip, 0);
	r = poke(page);
	printf("poke %ld, %ld, faults %d, wrong %d\n", r, ((long *)page)[1], faults, wrong_place);
	mprotect(page, 4096, PROT_NONE);
	signal(SIGSEGV, jump);
	int sig = sigsetjmp(out, 1);
	if (!sig)
		poke(page);
	printf("left by %d\n", sig);

	volatile int running = 0;
	pthread_t t;
	shared[2] = 0;
	pthread_create(&t, NULL, spinner, (void *)&running);
	while (!running)
		;
	usleep(20000);
	pthread_cancel(t);
	void *res;
	pthread_join(t, &res);
	printf("cancelled %d %d\n", res == PTHREAD_CANCELED, cancelled);

	signal(SIGSEGV, SIG_DFL);
	if (fork() == 0)
		poke((void *)8);
	int status;
	wait(&status);
	printf("child %d\n", WTERMSIG(status));
	return 0;
}
