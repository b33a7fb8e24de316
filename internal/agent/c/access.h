/* access.h: what access.c (accesses that recipes tell of) and tell.c (the code that recipes call) share. */
#ifndef RS_ACCESS_H
#define RS_ACCESS_H
#include "core.h"
#include <ucontext.h>

struct rs_access_context { uint64_t gpr[16], flags, site, next, addr[2], data, outer, info; }; /* recipe.Context */

/* What a thread has told already since its last other event, by address, and by size and kind. An access that is found here is nothing new; of a read that is so only as long as what
 * `watch` points to is `value` when the read has been made. */
struct rs_told_entry {
	uint64_t key;              /* the address, xor the memory's stamp */
	const uint64_t *watch;     /* a word of the owners (access.c), or the read's own 8 bytes, or what never changes */
	uint64_t value;
	uintptr_t ret;             /* where the mark is of a recipe that made it */
};
enum { RS_TOLD_PLACES = 8192, RS_TOLD_SIZES = 5, RS_TOLD_TABLES = 2 * RS_TOLD_SIZES };

/* The first part of a thread's memory (rs_thread.accesses), which tell.c reads. */
struct rs_told {
	uint64_t seen;             /* rs_access_changes when the tables were right; 0: they are not to be used now */
	struct rs_told_entry *last; /* the access that was made last, if it was in a table; else `none`, or `force` */
	uint64_t stamp;
	uint64_t spare[5];
	struct rs_told_entry none, force; /* their watch is never changed, and always */
	struct rs_told_entry table[RS_TOLD_TABLES][RS_TOLD_PLACES]; /* reads of 1, 2, 4, 8, 16 bytes, then writes */
};
/* An address's place in its table: bits of the address << rs_told_shift, in bytes. */
static const uint8_t rs_told_shift[RS_TOLD_TABLES] = {5, 4, 3, 2, 2, 5, 4, 3, 2, 2};

/* Bits of the event's kind, and of a Call's data, which has 16 bits for each access. CALLED: by a function that the program called (called.c), told when it suits, and never to be looked at.
 * REPEATED: by an instruction that takes several elements, of a string or a vector: likewise. */
enum { READ = 1, WRITE = 2, ATOMIC = 4, FENCE = 8, REPEATED = 16, DONE = 32, FENCED = 64, CALLED = 128 };
/* In a Call's data alone, of an atomic access: RS_RACE_NO_TAKE and RS_RACE_NO_GIVE. */
enum { NO_TAKE = 256, NO_GIVE = 512, ORDER = NO_TAKE | NO_GIVE };
/* known: told before, and only worth it if the bytes have changed. fenced: a fence follows at once. */
struct touch { uintptr_t addr, pc; uint64_t size; uintptr_t ret; uint32_t stack; uint8_t kind; bool known, fenced; uint16_t order; };
/* The accesses of an instruction, in kind with FENCED, or a fence. */
struct accesses { unsigned count; struct touch *a; unsigned *kind; };

/* A number that is raised, from 1 on, before an atomic instruction is made to bytes that none was made to before. */
extern uint64_t rs_access_changes RS_HIDDEN;

/* Bits of a mark's shape (internal/access): as of an event's kind, and log2 of the size above them. */
enum { RS_SHAPE_READ = 1, RS_SHAPE_WRITE = 2, RS_SHAPE_ATOMIC = 4, RS_SHAPE_FENCED = 8, RS_SHAPE_SIZE = 4, RS_SHAPE_PASSES = 128 }; /* PASSES: a read that was put off before need not be told first, by those to whom nothing is new; of a write if it is of the same address */
struct __attribute__((packed)) rs_tell_mark { uint8_t nop[3], shape; int32_t distance; };
static inline unsigned rs_tell_shape(uintptr_t ret) { return ((const struct rs_tell_mark *)ret)->shape & (RS_SHAPE_PASSES - 1); }
static inline bool rs_tell_passes(uintptr_t ret) { return ((const struct rs_tell_mark *)ret)->shape & RS_SHAPE_PASSES; }
static inline uintptr_t rs_tell_site(uintptr_t ret) { return ret + (uintptr_t)(intptr_t)((const struct rs_tell_mark *)ret)->distance; }

/* lanes.c: the accesses of an instruction whose bytes registers or memory decide. */
enum { RS_LANES_MOST = 33 };
#define RS_LANES (1ull << 63) /* in the Call's data */
#define RS_TAKES_OURS (1ull << 62) /* likewise: no access, but rs_share_taken */
void rs_lanes(const struct rs_access_context *c, struct accesses *list) RS_HIDDEN;

/* lines.c, with rs_config.lines. own: the thread's memory for it. */
struct rs_lines;
void rs_lines_take(struct rs_thread *t, struct rs_lines **own, const struct accesses *list) RS_HIDDEN;

/* full.c, with rs_config.races. */
void rs_full_take(const struct rs_access_context *c, const struct accesses *list) RS_HIDDEN;
/* fullquick.c: the access of a recipe whose mark lies at ret, if it is one that little is to be done for. False: it is to be told by rs_full_take. */
bool rs_full_quick(const struct rs_access_context *c, uintptr_t ret) RS_HIDDEN;
void rs_full_event(struct rs_thread *t, unsigned id) RS_HIDDEN;
/* A plain access, no mov, of a function that the program called with frame fp, which returns to pc: told, if it lies in a cell and nothing waits to be told before it. */
bool rs_full_at_once(uintptr_t p, size_t n, unsigned kind, uintptr_t pc, const uint64_t *fp) RS_HIDDEN;
/* tsan.c: a fence of the program's own. */
void rs_full_fence(struct rs_thread *t, bool acquires, bool releases) RS_HIDDEN;
/* Where the thread is whose access is being looked at; false: that was earlier, or it is in a handler. */
bool rs_full_where(struct rs_thread *t, struct rs_frame *out) RS_HIDDEN;

/* access.c, called by tell.c: the recipe whose mark lies at ret tells an access to c->addr[0]. */
void rs_access_told(struct rs_access_context *c, uintptr_t ret) RS_HIDDEN;

/* tell.c: where the i'th entry for recipes begins: one for each table, then one for what is never in a table. Not C functions. */
#define RS_TELL_ENTRY(i) ((uintptr_t)rs_tell_code + RS_TELL_BYTES * (i))
enum { RS_TELL_BYTES = 256 };
extern const char rs_tell_code[] RS_HIDDEN;
/* Likewise, where the agent looks for races: reads of 1, 2, 4, 8, 16 bytes, then writes, then what is both. */
#define RS_FULL_ENTRY(i) ((uintptr_t)rs_full_code + RS_FULL_BYTES * (i))
enum { RS_FULL_BYTES = 1024, RS_FULL_SIZES = 5 };
extern const char rs_full_code[] RS_HIDDEN;
/* Likewise, of accesses to a frame whose place no other thread has been told (internal/access, frame.go): as those of rs_full_code and what is in no table, or nothing, by the thread's `frames`, whose entries are one of the two. */
enum { RS_OWN_ENTRIES = 3 * RS_FULL_SIZES + 1, RS_OWN_BYTES = 32 };
#define RS_OWN_ENTRY(i) ((uintptr_t)rs_own_code + RS_OWN_BYTES * (i))
extern const char rs_own_code[] RS_HIDDEN;
extern const uintptr_t rs_own_quiet[RS_OWN_ENTRIES] RS_HIDDEN, rs_own_told[RS_OWN_ENTRIES] RS_HIDDEN;
/* The calling thread's word is that one; NULL: it is not known, and its frames are not looked at. */
void rs_own_by(const struct rs_race_frames *word) RS_HIDDEN;
/* g are a thread's registers as the kernel keeps them in a signal's ucontext. If it is in tell.c's code: true. If access.c has been called then, or is about to be, *context is its context: the
 * thread must go on where it is. Else g becomes the program's, at the site, and the thread goes on at *resume if the program lets it go on there. */
bool rs_tell_view(greg_t *g, struct rs_access_context **context, uintptr_t *resume) RS_HIDDEN;
/* trampoline.c: g becomes what a context says, and the call that it is for is over. */
void rs_access_context_back(greg_t *g, const struct rs_access_context *c) RS_HIDDEN;
bool rs_tell_has(uintptr_t pc) RS_HIDDEN;
#endif
