/* A block that is freed twice, by a wrapper that many call: first by second_drops, from as deep a stack as the hundreds of frees of first_drops before. With an argument these are
 * left out, and the stack of the first free is the block's own. */
#include <stdlib.h>

static char *volatile hidden;

static __attribute__((noinline)) void drop(char *p)
{
	free(p);
	__asm__ volatile ("" ::: "memory");
}

static __attribute__((noinline)) void first_drops(char *p)
{
	drop(p);
	__asm__ volatile ("" ::: "memory");
}

static __attribute__((noinline)) void second_drops(char *p)
{
	drop(p);
	__asm__ volatile ("" ::: "memory");
}

int main(int argc, char **argv)
{
	(void)argv;
	for (int i = 0; argc == 1 && i < 500; i++)
		first_drops(hidden = malloc(40));
	hidden = malloc(40);
	second_drops(hidden);
	free(hidden);
	return 0;
}
