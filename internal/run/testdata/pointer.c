// A pointer in a global is overwritten by another function, and used then. With an argument it is null from the beginning, which main wrote.
#include <stdio.h>
#include <stdlib.h>

static long *volatile shared;

__attribute__((noinline)) static void spoil(void) { shared = (long *)0x1230; }
__attribute__((noinline)) static long use(void) { return *shared; }

int main(int argc, char **argv)
{
	(void)argv;
	long value = 1;
	shared = argc > 1 ? NULL : &value;
	puts("begun");
	fflush(stdout);
	if (argc == 1)
		spoil();
	return (int)use();
}
