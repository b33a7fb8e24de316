// Says whether a function was bound before its first call, and calls it: bound. Linked lazily, with a library (this file, too) that calls a function which nobody has, where there is an argument.
#ifdef LIBRARY
int nobody(void);
int needs(int how) { return how ? nobody() : 0; }
#else
#include <elf.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

int needs(int how);
extern ElfW(Dyn) _DYNAMIC[];

static int unbound(const char *name)
{
	const ElfW(Rela) *rela = NULL;
	const ElfW(Sym) *symbols = NULL;
	const char *names = NULL;
	size_t n = 0;
	ElfW(Addr) base = 0;
	for (struct link_map *m = _r_debug.r_map; m; m = m->l_next)
		if (m->l_ld == _DYNAMIC)
			base = m->l_addr;
	for (const ElfW(Dyn) *d = _DYNAMIC; d->d_tag != DT_NULL; d++) {
		if (d->d_tag == DT_JMPREL)
			rela = (const ElfW(Rela) *)d->d_un.d_ptr;
		else if (d->d_tag == DT_PLTRELSZ)
			n = d->d_un.d_val / sizeof *rela;
		else if (d->d_tag == DT_SYMTAB)
			symbols = (const ElfW(Sym) *)d->d_un.d_ptr;
		else if (d->d_tag == DT_STRTAB)
			names = (const char *)d->d_un.d_ptr;
	}
	for (size_t i = 0; i < n; i++) {
		if (strcmp(names + symbols[ELF64_R_SYM(rela[i].r_info)].st_name, name))
			continue;
		const unsigned char *at = *(const unsigned char **)(base + rela[i].r_offset);
		ElfW(Addr) own = (ElfW(Addr))unbound;
		return (ElfW(Addr))at - own < 1 << 16 || own - (ElfW(Addr))at < 1 << 16; /* its own PLT */
	}
	return -1;
}

int main(int argc, char **argv)
{
	(void)argv;
	printf("%s\n", unbound("getc") == 1 ? "at its first call" : unbound("getc") == 0 ? "before" : "?");
	fflush(stdout);
	if (getc(stdin) != EOF)
		return 2;
	return needs(argc > 1);
}
#endif
