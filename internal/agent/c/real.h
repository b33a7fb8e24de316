/* real.h: the table of real functions behind the interposed ones. Each noun's file adds its own list, real_<noun>.h, of lines
 *   R(return type, name, "VERSION" or "", (argument types))
 * where the version is given whenever glibc has more than one (pthread_cond_*, sem_*, …: objdump -T libc.so.6), or
 *   R_AS(return type, member of the table, name, "VERSION", (argument types))
 * for an older version of a function that differs from today's: see versions.map. */
#ifndef RS_REAL_H
#define RS_REAL_H
#include "real_list.h"

#define R(ret, name, version, args) R_AS(ret, name, name, version, args)
struct rs_real_table {
#define R_AS(ret, member, name, version, args) ret (*member) args;
	RS_REAL_LIST
#undef R_AS
};
extern struct rs_real_table rs_real __attribute__((visibility("hidden")));
/* Fills rs_real with what glibc has; a missing function stays NULL. Idempotent, async-signal-unsafe, called by rs_init. */
void rs_real_init(void);
/* The rest of rs_real, which the program may lack. Called by the constructor; these are NULL before. */
void rs_real_init_maybe(void) __attribute__((visibility("hidden")));
/* Looks names up before there is a second thread. What a miss allocates comes from the early area meanwhile: nothing of ours is the first in the program's heap, which may still be moved (vm.c). */
void rs_real_quietly(void (*find)(void)) __attribute__((visibility("hidden")));
/* The next definition of name after ours, of that version ("" for the default); NULL if there is none. Async-signal-unsafe. */
void *rs_real_find(const char *name, const char *version) __attribute__((visibility("hidden")));
/* What the program and its libraries mean by that name, of that version ("": the default), which may be a copy in the executable; NULL: there is none, and that is no error. */
void *rs_real_meant(const char *name, const char *version) __attribute__((visibility("hidden")));

/* Exports `function`, under no other name, as an older version of name, besides the one that today's programs are linked with. */
#define RS_OLD(function, name, version) __asm__(".symver " #function ", " #name "@" version ", remove")
/* Exports a second name of `function` of which glibc has no version for new programs: dlsym does not find it. */
#define RS_OLD_NAME(name, function, version) \
	__asm__(".globl rs_old_" #name "\n\t.type rs_old_" #name ", @function\n\t.set rs_old_" #name ", " #function "\n\t" \
		".symver rs_old_" #name ", " #name "@" version ", remove")
#endif
