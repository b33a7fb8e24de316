/* sanitizer.c: programs that carry the runtime of a sanitizer which stands no preloaded library beside it. AddressSanitizer's shared runtime ends
 * the program if another library comes first; ThreadSanitizer's takes our locks for the program's, or crashes when it is called before its
 * own start. Those linked with AddressSanitizer's static runtime get on with us.
 *
 * Ground rules that bite here: this may run in a vfork child, so system calls and the stack only; the file is somebody else's, so nothing in
 * it is believed. What cannot be read has no sanitizer. */
#include "proc.h"
#include <unistd.h>

#define MAX_HEADERS 32
#define MAX_DYNAMIC 128
#define MAX_CHAIN 64

static const char *const runtimes[] = {"libasan.so", "libhwasan.so", "libtsan.so", "libclang_rt.asan", "libclang_rt.hwasan", "libclang_rt.tsan"};
/* What an executable with ThreadSanitizer's static runtime exports: clang's all of it, gcc's what it interposes, and no other interposes setjmp. */
static const char entry[] = "__tsan_init", jump[] = "__sigsetjmp", lock[] = "pthread_mutex_trylock";

static bool begins(const char *s, const char *with)
{
	while (*with)
		if (*s++ != *with++)
			return false;
	return true;
}

static bool is_runtime(const char *name)
{
	for (size_t i = 0; i < sizeof runtimes / sizeof *runtimes; i++)
		if (begins(name, runtimes[i]))
			return true;
	return false;
}

bool rs_sanitizer_preloaded(const char *list)
{
	const char *name = list;
	for (const char *p = list; *p; p++)
		if (*p == '/' || *p == ':' || *p == ' ')
			name = p + 1;
		else if (p == name && is_runtime(name))
			return true;
	return false;
}

struct file {
	int fd;
	unsigned headers;
	Elf64_Phdr header[MAX_HEADERS];
};

/* n bytes of what will be loaded at an address. */
static bool loaded(const struct file *f, uint64_t at, void *to, size_t n)
{
	for (unsigned i = 0; i < f->headers; i++) {
		const Elf64_Phdr *h = &f->header[i];
		if (h->p_type == PT_LOAD && at >= h->p_vaddr && at - h->p_vaddr < h->p_filesz && n <= h->p_filesz - (at - h->p_vaddr))
			return RS_SYS4(SYS_pread64, f->fd, to, n, h->p_offset + (at - h->p_vaddr)) == (long)n;
	}
	return false;
}

/* Is the symbol defined? By the table of `hash` (DT_GNU_HASH), whose filter says no for nearly all programs. */
static bool exports(const struct file *f, const char *name, uint64_t hash, uint64_t symbols, uint64_t strings)
{
	struct { uint32_t buckets, first, words, shift; } head;
	uint32_t h = 5381, at, index;
	size_t n = 0;
	for (; name[n]; n++)
		h = h * 33 + (unsigned char)name[n];
	if (!loaded(f, hash, &head, sizeof head) || !head.buckets || !head.words)
		return false;
	uint64_t word, bits = 1ull << h % 64 | 1ull << (h >> (head.shift & 31)) % 64;
	if (!loaded(f, hash + 16 + h / 64 % head.words * 8ull, &word, 8) || (word & bits) != bits)
		return false;
	uint64_t buckets = hash + 16 + head.words * 8ull, chains = buckets + head.buckets * 4ull;
	if (!loaded(f, buckets + h % head.buckets * 4ull, &index, 4) || index < head.first)
		return false;
	for (unsigned i = 0; i < MAX_CHAIN && loaded(f, chains + (index - head.first) * 4ull, &at, 4); i++, index++) {
		Elf64_Sym s;
		char text[32];
		if ((at | 1) == (h | 1) && loaded(f, symbols + index * sizeof s, &s, sizeof s) && s.st_shndx != SHN_UNDEF &&
		    loaded(f, strings + s.st_name, text, n + 1) && begins(text, name) && !text[n])
			return true;
		if (at & 1)
			break;
	}
	return false;
}

bool rs_sanitizer_in(int fd, const Elf64_Ehdr *h)
{
	struct file f = {.fd = fd, .headers = h->e_phnum < MAX_HEADERS ? h->e_phnum : MAX_HEADERS};
	if (RS_SYS4(SYS_pread64, fd, f.header, f.headers * sizeof f.header[0], h->e_phoff) != (long)(f.headers * sizeof f.header[0]))
		return false;
	const Elf64_Phdr *dynamic = NULL;
	for (unsigned i = 0; i < f.headers; i++)
		if (f.header[i].p_type == PT_DYNAMIC)
			dynamic = &f.header[i];
	if (!dynamic)
		return false;
	Elf64_Dyn d[MAX_DYNAMIC];
	size_t bytes = dynamic->p_filesz < sizeof d ? dynamic->p_filesz : sizeof d;
	long got = RS_SYS4(SYS_pread64, fd, d, bytes, dynamic->p_offset);
	uint64_t strings = 0, symbols = 0, hash = 0;
	unsigned n = 0;
	for (; got > 0 && n < (size_t)got / sizeof *d && d[n].d_tag != DT_NULL; n++) {
		switch (d[n].d_tag) {
		case DT_STRTAB: strings = d[n].d_un.d_ptr; break;
		case DT_SYMTAB: symbols = d[n].d_un.d_ptr; break;
		case DT_GNU_HASH: hash = d[n].d_un.d_ptr; break;
		}
	}
	for (unsigned i = 0; i < n; i++) {
		char name[24] = "";
		if (d[i].d_tag == DT_NEEDED && loaded(&f, strings + d[i].d_un.d_val, name, sizeof name - 1) && is_runtime(name))
			return true;
	}
	return hash && (exports(&f, entry, hash, symbols, strings) ||
		(exports(&f, jump, hash, symbols, strings) && exports(&f, lock, hash, symbols, strings)));
}
