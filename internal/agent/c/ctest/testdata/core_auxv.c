// The auxiliary vector, as getauxval sees it and as runtimes find it behind the environment.
#include <elf.h>
#include <stdio.h>
#include <sys/auxv.h>

extern char **environ;
int main(int argc, char **argv, char **envp)
{
	char **e = envp;
	int n = 0;
	while (*e)
		e++;
	printf("environ %d page %lu uid %lu phnum %lu\n", environ == envp, getauxval(AT_PAGESZ), getauxval(AT_UID), getauxval(AT_PHNUM));
	for (Elf64_auxv_t *a = (Elf64_auxv_t *)(e + 1); a->a_type != AT_NULL; a++)
		if (a->a_type != AT_IGNORE)
			n++;
	printf("walked %d\n", n);
	return 0;
}
