/* heappast.c: who has other dealings with the program's allocator than malloc and free. jemalloc's mallocx and sdallocx, tcmalloc's tc_malloc are no
 * functions of ours: what they hand out may lie where malloc's blocks lay that were freed, and nobody tells. A program that calls them imports them,
 * so the objects are looked at as they are loaded; nothing is of interest where the allocator is glibc's. Who asks for them by dlsym is not seen.
 *
 * Ground rules: called within dl_iterate_phdr, of objects that are loaded and relocated or about to be; nothing is called but functions of ours. */
#include "core.h"
#include "heap.h"
#include "race.h"
#include <elf.h>
#include <gnu/libc-version.h>
#include <link.h>

struct object {
	const Elf64_Sym *symbols;
	const char *strings;
	const uint32_t *hash; /* DT_GNU_HASH */
	struct { const Elf64_Rela *at; uint64_t bytes; } relocated[2];
};

static const void *at(const struct dl_phdr_info *info, uint64_t p) { return (const void *)(p < info->dlpi_addr ? info->dlpi_addr + p : p); }

static bool read_dynamic(const struct dl_phdr_info *info, struct object *o)
{
	const Elf64_Dyn *d = NULL;
	for (unsigned i = 0; i < info->dlpi_phnum; i++)
		if (info->dlpi_phdr[i].p_type == PT_DYNAMIC)
			d = (const Elf64_Dyn *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
	*o = (struct object){.symbols = NULL};
	for (; d && d->d_tag != DT_NULL; d++)
		switch (d->d_tag) {
		case DT_SYMTAB: o->symbols = at(info, d->d_un.d_ptr); break;
		case DT_STRTAB: o->strings = at(info, d->d_un.d_ptr); break;
		case DT_GNU_HASH: o->hash = at(info, d->d_un.d_ptr); break;
		case DT_RELA: o->relocated[0].at = at(info, d->d_un.d_ptr); break;
		case DT_RELASZ: o->relocated[0].bytes = d->d_un.d_val; break;
		case DT_JMPREL: o->relocated[1].at = at(info, d->d_un.d_ptr); break;
		case DT_PLTRELSZ: o->relocated[1].bytes = d->d_un.d_val; break;
		}
	return o->symbols && o->strings;
}

static bool equal(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

static bool is_defined(const struct object *o, const char *name)
{
	const uint32_t buckets = o->hash[0], first = o->hash[1], words = o->hash[2], *bucket = o->hash + 4 + words * 2, *chain = bucket + buckets;
	uint32_t h = 5381;
	for (const char *s = name; *s; s++)
		h = h * 33 + (unsigned char)*s;
	uint32_t i = buckets ? bucket[h % buckets] : 0;
	for (; i && i >= first; i++) {
		const Elf64_Sym *s = &o->symbols[i];
		if ((chain[i - first] | 1) == (h | 1) && ELF64_ST_TYPE(s->st_info) == STT_FUNC && s->st_shndx != SHN_UNDEF && equal(o->strings + s->st_name, name))
			return true;
		if (chain[i - first] & 1)
			break;
	}
	return false;
}

/* It hands out or takes back blocks, by its name, and is none of those that are ours (heap.c, heapname.c). */
static bool is_other(const char *name)
{
	static const char *const known[] = {"malloc", "calloc", "realloc", "reallocarray", "aligned_alloc", "valloc", "pvalloc", "__libc_malloc", "__libc_calloc", "__libc_realloc",
		"__libc_reallocarray", "__libc_valloc", "__libc_pvalloc"};
	static const char about[] = "malloc_"; /* malloc_usable_size, malloc_stats */
	const char *s = name;
	for (unsigned i = 0; i < sizeof known / sizeof *known; i++)
		if (equal(name, known[i]))
			return false;
	unsigned n = 0;
	while (n < sizeof about - 1 && name[n] == about[n])
		n++;
	if (n == sizeof about - 1)
		return false;
	while (*s && !(s[0] == 'a' && s[1] == 'l' && s[2] == 'l' && s[3] == 'o' && s[4] == 'c'))
		s++;
	return *s;
}

static struct object allocator; /* of which module.c told, and which is not glibc's */
static bool past;

static bool has(const struct dl_phdr_info *info, uintptr_t pc)
{
	for (unsigned i = 0; i < info->dlpi_phnum; i++) {
		const Elf64_Phdr *h = &info->dlpi_phdr[i];
		if (h->p_type == PT_LOAD && pc - (info->dlpi_addr + h->p_vaddr) < h->p_memsz)
			return true;
	}
	return false;
}

void rs_heap_allocator(const struct dl_phdr_info *info)
{
	if (!allocator.hash && has(info, (uintptr_t)rs_real.malloc) && !has(info, (uintptr_t)gnu_get_libc_version) && !read_dynamic(info, &allocator))
		allocator.hash = NULL; /* NULL: no other one's functions are known */
}

void rs_heap_imports(const struct dl_phdr_info *info)
{
	struct object o;
	if (!allocator.hash || past || !read_dynamic(info, &o))
		return;
	/* A table of symbols does not say how long it is. What is called is relocated. */
	for (unsigned r = 0; r < 2; r++)
		for (const Elf64_Rela *x = o.relocated[r].at; x && x < o.relocated[r].at + o.relocated[r].bytes / sizeof *x; x++) {
			const Elf64_Sym *s = &o.symbols[ELF64_R_SYM(x->r_info)];
			if (s != o.symbols && s->st_shndx == SHN_UNDEF && is_other(o.strings + s->st_name) && is_defined(&allocator, o.strings + s->st_name)) {
				__atomic_store_n(&past, true, __ATOMIC_RELEASE);
				rs_race_blocks_unseen();
				return;
			}
		}
}

void rs_heap_say_past(struct rs_thread *t)
{
	if (t && (rs_config.all || rs_config.races) && __atomic_load_n(&past, __ATOMIC_ACQUIRE))
		rs_notice(t, RS_NOTICE_OTHER_ALLOCATIONS, 0, 0);
}
