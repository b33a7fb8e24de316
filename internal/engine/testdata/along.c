/* along.c: asks for one instruction of a function that is called all the time by another thread, and says what the function gives. Without the agent it asks for none. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

struct node { long a, b, c, d, e; };

/* The first instruction that accesses memory is asked for. */
long sum(struct node *n);
extern char sum_first[];
__asm__(".text\n.globl sum\n.type sum, @function\nsum:\n\txor %eax, %eax\nsum_first:\n\tadd (%rdi), %rax\n\tadd 8(%rdi), %rax\n\tadd 16(%rdi), %rax\n\tlea 1(%rax), %rax\n\tadd 24(%rdi), %rax\n\tadd 32(%rdi), %rax\n\tret\n.size sum, .-sum\n");

static int stop;
static long wrong;
static void *calls(void *p)
{
	while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
		wrong += sum(p) != 16;
	return NULL;
}

int main(void)
{
	struct node n = {1, 2, 3, 4, 5};
	int (*site)(uintptr_t) = (int (*)(uintptr_t))dlsym(RTLD_DEFAULT, "ripstop_patch_site");
	pthread_t t;
	pthread_create(&t, NULL, calls, &n);
	int r = 0;
	while (site && ((r = site((uintptr_t)sum_first)) == -ETIMEDOUT || r == -ECANCELED)) /* ripstop was kept waiting for a processor */
		;
	if (r != 0)
		printf("refused: %d\n", r);
	for (int i = 0; i < 1000; i++)
		wrong += sum(&n) != 16;
	__atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
	pthread_join(t, NULL);
	printf("%ld wrong\n", wrong);
	return 0;
}
