/* images.c: code in files that are no ELF files, mapped as JITs and Wine map it; then a library, so that modules are looked for; a child does the same. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static int run(const char *name)
{
	static const char code[] = {(char)0xb8, 7, 0, 0, 0, (char)0xc3}; /* mov $7, %eax; ret */
	int fd = memfd_create(name, 0);
	if (ftruncate(fd, 4096) || pwrite(fd, code, sizeof code, 0) != sizeof code)
		return -1;
	int (*f)(void) = (int (*)(void))mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	return (void *)f == MAP_FAILED ? -1 : f();
}

int main(void)
{
	int n = run("one") + run("two"), status;
	void *h = dlopen("libutil.so.1", RTLD_NOW), *g = dlopen("libresolv.so.2", RTLD_NOW);
	printf("%d %d\n", n, h && g);
	fflush(stdout);
	if (!fork())
		_exit(run("three") + (dlopen("libanl.so.1", RTLD_NOW) != NULL));
	wait(&status);
	printf("%d\n", WEXITSTATUS(status));
	return 0;
}
