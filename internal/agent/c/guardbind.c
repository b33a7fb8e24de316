/* guardbind.c: binds what ld.so would bind at the first call of each function, before the first epoch. See guard.h.
 *
 * Whoever calls a function first runs ld.so's resolver on its stack, which leaves there what it pushed; the next to call it does not. That is an order among threads that nothing says, so a re-execution left other words in holes of
 * frames than the recording. ld.so's own function is called for each slot, so the outcome is its own: the same as with LD_BIND_NOW, but for what cannot be bound, which is left as it is, and is an error, if at all, where it is natively.
 *
 * Not with a resolver of another shape (auditors, LD_PROFILE, another glibc), and not what dlopen brings later. */
#include "core.h"
#include "guardsync.h"
#include <dlfcn.h>
#include <elf.h>
#include <link.h>

enum { RESOLVER = 256 /* bytes that are looked at */ };
typedef uintptr_t fixup(struct link_map *m, uint64_t i);

struct object {
	const struct link_map *map;
	const uintptr_t *got;
	const Elf64_Rela *rela;
	size_t relas;
	const Elf64_Sym *symbols;
	const char *names;
	const uint16_t *versions;
	const char *needs, *defines;
	uint64_t kind;
};

static int (*find_object)(void *, struct dl_find_object *);
static const struct r_debug *debug;

static const struct link_map *object_of(const void *p)
{
	struct dl_find_object of;
	return find_object((void *)p, &of) == 0 ? of.dlfo_link_map : NULL;
}

static const void *at(const struct object *o, uint64_t p) { return (const void *)(p < o->map->l_addr ? p + o->map->l_addr : p); }

static void look(struct object *o)
{
	for (const Elf64_Dyn *d = o->map->l_ld; d->d_tag != DT_NULL; d++)
		switch (d->d_tag) {
		case DT_PLTGOT: o->got = at(o, d->d_un.d_ptr); break;
		case DT_JMPREL: o->rela = at(o, d->d_un.d_ptr); break;
		case DT_PLTRELSZ: o->relas = d->d_un.d_val / sizeof *o->rela; break;
		case DT_PLTREL: o->kind = d->d_un.d_val; break;
		case DT_SYMTAB: o->symbols = at(o, d->d_un.d_ptr); break;
		case DT_STRTAB: o->names = at(o, d->d_un.d_ptr); break;
		case DT_VERSYM: o->versions = at(o, d->d_un.d_ptr); break;
		case DT_VERNEED: o->needs = at(o, d->d_un.d_ptr); break;
		case DT_VERDEF: o->defines = at(o, d->d_un.d_ptr); break;
		}
}

/* What the resolver calls: between mov 16(%rbx), %rsi; mov 8(%rbx), %rdi and mov %rax, %r11. NULL: it is none that we know. */
static fixup *fixup_of(uintptr_t resolver)
{
	static const uint8_t before[] = {0x48, 0x8b, 0x73, 0x10, 0x48, 0x8b, 0x7b, 0x08, 0xe8}, behind[] = {0x49, 0x89, 0xc3};
	const struct link_map *linker = object_of((const void *)debug->r_brk);
	if (!linker || object_of((const void *)resolver) != linker || object_of((const void *)(resolver + RESOLVER + 16)) != linker)
		return NULL;
	const uint8_t *p = (const uint8_t *)resolver;
	for (size_t i = 0; i < RESOLVER; i++)
		if (rs_os_equal(p + i, before, sizeof before) && rs_os_equal(p + i + sizeof before + 4, behind, sizeof behind)) {
			int32_t distance;
			rs_os_copy(&distance, p + i + sizeof before, 4);
			return (fixup *)(uintptr_t)(p + i + sizeof before + 4 + distance);
		}
	return NULL;
}

/* The version that the object says for this symbol, or "". */
static const char *version_of(const struct object *o, uint32_t symbol)
{
	unsigned index = o->versions ? o->versions[symbol] & 0x7fff : 0;
	if (index < 2)
		return "";
	for (const char *p = o->needs; p;) {
		const Elf64_Verneed *need = (const Elf64_Verneed *)p;
		const char *q = p + need->vn_aux;
		for (unsigned i = 0; i < need->vn_cnt; i++, q += ((const Elf64_Vernaux *)q)->vna_next)
			if (((const Elf64_Vernaux *)q)->vna_other == index)
				return o->names + ((const Elf64_Vernaux *)q)->vna_name;
		p = need->vn_next ? p + need->vn_next : NULL;
	}
	for (const char *p = o->defines; p;) {
		const Elf64_Verdef *def = (const Elf64_Verdef *)p;
		if (def->vd_ndx == index)
			return o->names + ((const Elf64_Verdaux *)(p + def->vd_aux))->vda_name;
		p = def->vd_next ? p + def->vd_next : NULL;
	}
	return NULL;
}

/* ld.so ends the process where there is none. */
static bool can_be_bound(const struct object *o, uint32_t symbol)
{
	const Elf64_Sym *s = &o->symbols[symbol];
	const char *version = version_of(o, symbol), *name = o->names + s->st_name;
	if (!version || ELF64_ST_VISIBILITY(s->st_other) != STV_DEFAULT)
		return false;
	return rs_real_meant(name, version);
}

/* A slot that was not bound leads to `push $i` of its own entry in the PLT. */
static bool unbound(const struct object *o, size_t i)
{
	static const uint8_t branch_target[] = {0xf3, 0x0f, 0x1e, 0xfa}; /* endbr64 */
	const uint8_t *p = *(const uint8_t *const *)(o->map->l_addr + o->rela[i].r_offset);
	if (object_of(p) != o->map || object_of(p + 9) != o->map)
		return false;
	p += rs_os_equal(p, branch_target, sizeof branch_target) ? sizeof branch_target : 0;
	uint32_t pushed;
	rs_os_copy(&pushed, p + 1, 4);
	return p[0] == 0x68 && pushed == i;
}

void rs_guard_bind(void)
{
	uintptr_t resolver = 0;
	fixup *bind = NULL;
	debug = rs_real_find("_r_debug", "");
	find_object = (int (*)(void *, struct dl_find_object *))rs_real_find("_dl_find_object", "");
	for (struct link_map *m = debug && find_object ? debug->r_map : NULL; m; m = m->l_next) {
		struct object o = {.map = m};
		look(&o);
		if (!o.got || !o.rela || o.kind != DT_RELA || !o.symbols || !o.names || o.got[1] != (uintptr_t)m || !o.got[2])
			continue;
		if (o.got[2] != resolver)
			bind = fixup_of(resolver = o.got[2]);
		for (size_t i = 0; bind && i < o.relas; i++)
			if (ELF64_R_TYPE(o.rela[i].r_info) == R_X86_64_JUMP_SLOT && unbound(&o, i) && can_be_bound(&o, ELF64_R_SYM(o.rela[i].r_info)))
				bind(m, i);
	}
}
