// A page that is closed before each read of it, and opened by the handler of the fault: how often the handler is called, and what it sees, shows whether anybody else looks.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <ucontext.h>

static volatile long *page;
static int faults;

static void opens(int sig, siginfo_t *info, void *context)
{
	extern char __executable_start, etext;
	const char *at = (const char *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
	faults++;
	if (sig != SIGSEGV || info->si_addr < (void *)page || at < &__executable_start || at >= &etext)
		printf("a fault at %p in code that is not the program's\n", info->si_addr);
	mprotect((void *)page, 4096, PROT_READ | PROT_WRITE);
}

int main(void)
{
	struct sigaction act = {.sa_sigaction = opens, .sa_flags = SA_SIGINFO | SA_NODEFER};
	sigaction(SIGSEGV, &act, 0);
	page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	long sum = 0;
	for (int i = 0; i < 100; i++) {
		sum += page[0] + page[0];
		mprotect((void *)page, 4096, PROT_NONE);
		sum += page[i % 2];
	}
	printf("%ld, %d faults\n", sum, faults);
	return 0;
}
