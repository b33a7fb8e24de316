/* librarycache.c: what is the C++ library's own although the program's code accesses it. std::ctype<char> keeps what narrow and widen answered in arrays of bytes, which libstdc++'s headers fill and read without any order, by code
 * that is inlined into the program: each thread writes the same (decision 34).
 *
 * Such an object is known by its class, which its first word leads to (Itanium C++ ABI 2.9.4), wherever it lies: the classic locale's in libstdc++'s data, others' on the heap, those of classes with ctype<char> as their one base.
 * Its layout is libstdc++'s since 3.4 (config/locale/gnu/ctype_members.cc, locale_facets.h).
 *
 * Ground rules: memory is read by the kernel alone, since what looks like an address may be none. */
#include "core.h"
#include "race.h"

enum { CACHES = 56, END = 570 }; /* _M_widen_ok, _M_widen, _M_narrow, _M_narrow_ok */
enum { WIDEST = END - CACHES }; /* its memcmp of all that narrow answers, where libstdc++ is a part of the program */
enum { NAME = 8, BASE = 16, DEPTH = 4 }; /* of a std::type_info */

static bool word(uint64_t at, uint64_t *w) { return at % 8 == 0 && rs_peek(w, at, sizeof *w); }

/* Whether the table of virtual functions is that of std::ctype<char> or of a class derived from it. */
static bool is_ctype(uint64_t table)
{
	static const char name[] = "St5ctypeIcE";
	uint64_t info, text;
	bool is = false, any = table && word(table - 8, &info);
	for (unsigned i = 0; any && !is && i < DEPTH; i++) {
		char found[sizeof name];
		is = info && word(info + NAME, &text) && text && rs_peek(found, text, sizeof found) && rs_os_equal(found, name, sizeof name);
		any = info && word(info + BASE, &info);
	}
	return is;
}

bool rs_library_cache(const struct rs_race_found *f)
{
	static uint64_t last, its; /* object and table that were found last */
	uint64_t table, at = __atomic_load_n(&last, __ATOMIC_RELAXED), lo = f->addr < f->addr2 ? f->addr : f->addr2, end = f->addr + f->size, end2 = f->addr2 + f->size2, hi = end > end2 ? end : end2;
	if (f->size > WIDEST || f->size2 > WIDEST || (f->kind | f->kind2) & (RS_RACE_ATOMIC | RS_RACE_OBJECT) || lo < END)
		return false;
	if (at && at + CACHES <= lo && hi <= at + END && word(at, &table) && table == __atomic_load_n(&its, __ATOMIC_RELAXED))
		return true;
	for (at = (lo - CACHES) & ~7ull; at + END >= hi; at -= 8)
		if (word(at, &table) && is_ctype(table)) {
			__atomic_store_n(&its, table, __ATOMIC_RELAXED);
			__atomic_store_n(&last, at, __ATOMIC_RELAXED);
			return true;
		}
	return false;
}
