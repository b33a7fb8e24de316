/* guardpage.h: writes to given bytes in a re-execution without breakpoints: their pages are read-only, and each store to one is a fault. guardpage.c; see guardwatch.h, which chooses, and docs/decisions.md, 53. */
#ifndef RS_GUARDPAGE_H
#define RS_GUARDPAGE_H
#include "calls.h"
#include "guard.h"
#include <signal.h>

/* --- the coordinator ------------------------------------------------------------------------------------------------------------------- */

/* Before the first checkpoint. -ENOMEM. */
long rs_guard_pages_begin(void) RS_HIDDEN;
/* World stopped, all at the checkpoint: the pages that these n addresses are in are watched from here on, wherever they are mapped. 0, or a negative errno: none is. */
long rs_guard_pages_arm(const uint64_t *address, unsigned n) RS_HIDDEN;
/* The map is the program's again. */
void rs_guard_pages_disarm(void) RS_HIDDEN;
/* What became of an address. KERNELS: the kernel writes to its page by itself, and would kill a thread if it could not; HOT: its page was written so often that it was given up. */
enum { RS_GUARD_PAGE_WATCHED, RS_GUARD_PAGE_KERNELS, RS_GUARD_PAGE_HOT, RS_GUARD_PAGE_LOCKED /* the kernel did not let us */ };
unsigned rs_guard_page_state(uint64_t address) RS_HIDDEN;
/* Can be read now. */
bool rs_guard_page_there(uint64_t address) RS_HIDDEN;
/* How many stores there were: who looks whether threads come on. */
uint64_t rs_guard_pages_stores(void) RS_HIDDEN;
/* Signals that must not be blocked, as they are forced on threads. */
uint64_t rs_guard_pages_signals(void) RS_HIDDEN;

/* --- on threads of the program, in a re-execution; general registers only ----------------------------------------------------------------- */

/* SIGSEGV, and SIGTRAP of a step: true: it was ours, and the thread goes on. */
bool rs_guard_page_fault(const siginfo_t *info, ucontext_t *uc) RS_HIDDEN;
bool rs_guard_page_stepped(ucontext_t *uc) RS_HIDDEN;
/* As rs_os_copy, of what no instruction of the program's writes. False: there is nothing watched. */
bool rs_guard_page_put(void *to, const void *from, size_t n) RS_HIDDEN;
/* Around what the kernel does to memory [lo,lo+n) for us: it writes there, which is told otherwise, or (map) changes the map, which is no write. */
void rs_guard_page_call(uintptr_t lo, size_t n) RS_HIDDEN;
void rs_guard_page_called(uintptr_t lo, size_t n, bool map) RS_HIDDEN;
/* In between: from here on it has this protection (PROT_…; -1: there is nothing). */
void rs_guard_page_mapped(uintptr_t lo, size_t n, int prot) RS_HIDDEN;
/* All this of a system call of the program's that is made again. */
void rs_guard_page_before(const struct rs_call *c) RS_HIDDEN;
void rs_guard_page_after(const struct rs_call *c) RS_HIDDEN;

/* --- guardwatch.c's -------------------------------------------------------------------------------------------------------------------------- */

/* Bytes [at,at+n) were written by this thread's last instruction, behind which its registers are uc's. */
void rs_guard_watch_stored(uint64_t at, size_t n, ucontext_t *uc) RS_HIDDEN;
/* Does any unit lie there, and where does the first one from `at` on begin (UINT64_MAX: none)? */
bool rs_guard_watch_meets(uint64_t at, size_t n) RS_HIDDEN;
uint64_t rs_guard_watch_next_unit(uint64_t at) RS_HIDDEN;
/* In [at,at+n): what differs from what was known was written while nobody looked (lost), or (fresh) is no write. */
void rs_guard_watch_unseen(uint64_t at, size_t n, bool fresh) RS_HIDDEN;
#endif
