/* step.c: steps itself through code in which an instruction is displaced for another one's sake, and says where it was after each step. Not PIE: the jump of `site` can
 * only be made inside a neighbour. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <ucontext.h>

/* The instruction at `site` has room for two bytes; a jump made of what follows would lead below address 0 or into the program; and a call is not displaced. `neighbour` has
 * room for a jump's first byte behind its own; the rest are the next two instructions, at which a thread may stand as well. */
__asm__(".text\n.skip 0x8000, 0x90\n.globl walk, walk_end\n.type walk, @function\n"
	"callee:	ret\n.skip 119, 0x90\n"
	"walk:	push %rbx\n	mov %rdi, %rbx\n	mov $20, %ecx\n	xor %eax, %eax\n"
	"site:	mov %eax, (%rbx)\n	call callee\n"
	"neighbour:	lea 3(%rax,%rax,2), %eax\n	xor $0x55, %al\n	add $0x30, %al\n	add %ecx, %eax\n	dec %ecx\n	jne site\n"
	"	pop %rbx\n	ret\nwalk_end:\n.size walk, .-walk\n");
unsigned walk(unsigned *);
extern char walk_end[];

static unsigned steps, list[1000];

static void on_trap(int sig, siginfo_t *info, void *context)
{
	(void)sig, (void)info;
	uintptr_t at = (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] - (uintptr_t)walk;
	if (at < (uintptr_t)(walk_end - (char *)walk) && steps < 1000)
		list[steps++] = (unsigned)at;
}

static void step(int on)
{
	uintptr_t flags = __builtin_ia32_readeflags_u64();
	__builtin_ia32_writeeflags_u64(on ? flags | 0x100 : flags & ~0x100ul);
}

int main(void)
{
	struct sigaction sa = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
	unsigned room;
	sigaction(SIGTRAP, &sa, NULL);
	step(1);
	unsigned r = walk(&room);
	step(0);
	printf("%u, %u\n", r, room);
	for (unsigned i = 0; i < steps; i++)
		printf("%x\n", list[i]);
	return 0;
}
