/* real.h: the table of real functions behind the interposed ones. Each noun's file adds its own list, real_<noun>.h, of lines
 *   R(return type, name, "VERSION" or "", (argument types))
 * where the version is given whenever glibc has more than one (pthread_cond_*, sem_*, …: objdump -T libc.so.6). */
#ifndef RS_REAL_H
#define RS_REAL_H
#include "real_list.h"

struct rs_real_table {
#define R(ret, name, version, args) ret (*name) args;
	RS_REAL_LIST
#undef R
};
extern struct rs_real_table rs_real __attribute__((visibility("hidden")));
/* Fills rs_real; a missing function stays NULL. Idempotent, async-signal-unsafe, called by rs_init. */
void rs_real_init(void);
/* The next definition of name after ours, of that version ("" for the default); NULL if there is none. Async-signal-unsafe. */
void *rs_real_find(const char *name, const char *version) __attribute__((visibility("hidden")));
#endif
