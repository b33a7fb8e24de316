// A signal came to a thread whose stack, a coroutine's, lay in memory that is watched by protection keys: its handler starts with the rights to key 0 alone, its first push faulted, and that fault had no stack
// either: the program died. And what a program is told of its alternate stack is what it set.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

static ucontext_t back, there;

static void handler(int sig)
{
	(void)sig;
	puts("handler");
}

static void coroutine(void)
{
	raise(SIGUSR1);
	swapcontext(&there, &back);
	raise(SIGUSR1);
	puts("again");
}

static void tell(void)
{
	stack_t s;
	sigaltstack(NULL, &s);
	printf("alternate stack: %d, flags %d\n", s.ss_sp != NULL, s.ss_flags);
}

int main(void)
{
	enum { BYTES = 1 << 18 };
	signal(SIGUSR1, handler);
	getcontext(&there);
	there.uc_stack.ss_sp = malloc(BYTES);
	there.uc_stack.ss_size = BYTES;
	there.uc_link = &back;
	makecontext(&there, coroutine, 0);
	swapcontext(&back, &there);
	tell();
	stack_t own = {.ss_sp = malloc(BYTES), .ss_size = BYTES}, none = {.ss_flags = SS_DISABLE};
	sigaltstack(&own, NULL);
	tell();
	sigaltstack(&none, NULL);
	tell();
	swapcontext(&back, &there);
	return 0;
}
