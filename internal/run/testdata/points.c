/* points: linked to a fixed address, so that the functions of the C library that it points to have their addresses in it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void (*const frees)(void *) = free;
static int (*const compares)(const char *, const char *) = strcmp;
static void *(*const copies)(void *, const void *, size_t) = memcpy;

int main(int argc, char **argv)
{
	char *p = malloc(10);
	copies(p, "text", 5);
	printf("%d %d\n", argc, compares(p, "text") + (compares != (argc > 99 ? (void *)argv : (void *)strcmp)));
	frees(p);
	return 0;
}
