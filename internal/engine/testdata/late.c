/* late.c: asks for a patch whose answer is late, goes on without, and asks again. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <unistd.h>

extern char here[];
__asm__(".text\n.globl f\n.type f, @function\nf:\nhere:	mov (%rdi), %rax\n	add $1, %rax\n	ret\n.size f, .-f\n");
long f(long *p);

int main(void)
{
	int (*site)(uintptr_t) = (int (*)(uintptr_t))dlsym(RTLD_DEFAULT, "ripstop_patch_site");
	long v = 41;
	int r = site((uintptr_t)here);
	printf("first %d, %ld, %s\n", r == -ETIMEDOUT, f(&v), (unsigned char)here[0] == 0x48 ? "as it was" : "changed");
	if (write(3, "x", 1) != 1)
		return 1;
	while ((r = site((uintptr_t)here)) == -ETIMEDOUT)
		;
	printf("then %d, %ld, %s\n", r, f(&v), (unsigned char)here[0] == 0x48 ? "as it was" : "changed");
	return 0;
}
