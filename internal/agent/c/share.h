/* share.h: finding what is shared by protection keys, and judging only accesses to that (Aikido, ASPLOS'12; docs/decisions.md, 36): `run --races=shared`.
 *
 * The heap lies in a region of our own, a shared mapping of a memfd that is mapped a second time at a constant distance, the mirror, which nobody is denied; globals, from when there is a second
 * thread, are pages of that memfd, too, mapped where they were and at that distance. What was handed out to a thread is private
 * to it, with that thread's protection key, or shared: then its key is one that every thread is denied, and instructions that touch it are patched to ask for the page's
 * state, tell the detector, and access the mirror by way of GS.
 *
 * share.c has the blocks, shareheap.c the agent's own heap, sharesite.c what is shared from the start, sharerest.c and sharelent.c sharing that ends and what goes from one thread to the next, shareglobal.c globals, sharemap.c what the program maps and what it does with mappings, sharekey.c keys and the processor's rights, sharefault.c what is touched, sharecall.c system calls, sharefork.c processes. All are compiled for general registers
 * only, and touch no memory of the program's but where they say so. */
#ifndef RS_SHARE_H
#define RS_SHARE_H
#include "core.h"
#include "calls.h"
#include "opened.h"
#include <signal.h>
#include <ucontext.h>
struct rs_kernel_action;

/* Config.Races. */
enum { RS_RACES_FULL = 1, RS_RACES_SHARED = 2 };

enum { SHARE_PAGE_BITS = 12, SHARE_TABLE_BITS = 47, SHARE_LEAST = 64 << 10 };
#define SHARE_BYTES (128ul << 30)
#define SHARE_HEAP (64ul << 30) /* from here on, rounded up, the agent's own heap's */
#define SHARE_PAGES (SHARE_HEAP >> SHARE_PAGE_BITS)
#define SHARE_HEAP_PAGES ((SHARE_BYTES - SHARE_HEAP) >> SHARE_PAGE_BITS)

/* Bits of the table of pages. */
enum { SHARE_JUDGED = 1, SHARE_GLOBAL = 2 }; /* GLOBAL: of a block that is not in the region, mmap'd ones too */

/* What a block is. Of one that is UNOWNED and whose first is 0 nobody knows who touched it before. */
enum share_state { SHARE_FREE, SHARE_UNOWNED, SHARE_PRIVATE, SHARE_SHARED, SHARE_OPEN, SHARE_STRIPPED /* PRIVATE, but its owner, who lives, has lost its key: all are denied it */,
	SHARE_RESTING /* PRIVATE, until its owner released something: all are denied it, and who knows of that release may have it (sharerest.c) */ };
struct share_block {
	uint32_t page, pages;      /* of the region */
	uint32_t owner;            /* a thread's number, PRIVATE, STRIPPED, RESTING or touched */
	uint32_t first;            /* UNOWNED: the only thread that may have it for its own: who allocated it; 0: any */
	uint8_t state, touched;    /* touched: some thread had it for its own, so that there are accesses that nobody was told of */
	uint8_t key;
	uint8_t anonymous;         /* at: no file lay behind it */
	uint8_t mapped;            /* the program's mmap */
	uint8_t prot;              /* at: what the program has made of it; if that is not PROT_READ | PROT_WRITE it is OPEN */
	uint8_t again;             /* as a page's of the heap (shareheap.c) */
	uint8_t lends;             /* SHARED: some of its pages may be lent (sharelent.c) */
	uint16_t rest;             /* RESTING, UNOWNED, STRIPPED: when its owner was done with it; 0: that is not known */
	uint32_t next;             /* free list of blocks */
	uintptr_t at;              /* where the program has it, if not in the region: globals, and what it has mmap'd */
};

extern struct share_region {
	uintptr_t base;            /* 0: there is none */
	uintptr_t heap;            /* where the agent's own heap begins, as long as it has its memory here; else the region's end */
	uintptr_t away;            /* from memory to its mirror, modulo 2^64: what GS is set to */
	uint8_t *table;            /* a byte for each page of the address space: SHARE_JUDGED, the page is judged and has a mirror; SHARE_GLOBAL: it is of a block that is not in the region */
	uint32_t deny;             /* PKRU that denies all our keys */
	uint8_t key;               /* that of what is shared or nobody's */
} rs_share RS_HIDDEN;
extern struct rs_lock rs_share_lock RS_HIDDEN; /* of blocks and keys; signals blocked, but SIGSEGV, which does not come while it is held */

static inline bool rs_share_has(uintptr_t p) { return rs_share.base && p - rs_share.base < SHARE_BYTES; }
static inline unsigned rs_share_bits(uintptr_t p) { return rs_share.base && !(p >> SHARE_TABLE_BITS) ? __atomic_load_n(&rs_share.table[p >> SHARE_PAGE_BITS], __ATOMIC_RELAXED) : 0; }
static inline bool rs_share_is_heap(uintptr_t p) { return rs_share_has(p) && p >= rs_share.heap; }

static inline uint32_t share_rights(void)
{
	uint32_t a, d;
	__asm__ volatile("rdpkru" : "=a"(a), "=d"(d) : "c"(0));
	return a;
}
static inline void share_set_rights(uint32_t pkru) { __asm__ volatile("wrpkru" : : "a"(pkru), "c"(0), "d"(0) : "memory"); }

/* A program's own order may come through memory that is not watched: a race of which nothing orders that is known may rest on movs that could be atomics (racefound.c). */
extern bool rs_race_unsure RS_HIDDEN;

/* --- share.c ------------------------------------------------------------------------------------------------------------------- */

/* At the start of the process, before its code is patched. Gives the address of the table; 0: it is not done here, and all accesses are judged. */
uintptr_t rs_share_begin(void) RS_HIDDEN;
/* The block that an address lies in, NULL if there is none. Locked. */
struct share_block *rs_share_block(uintptr_t p) RS_HIDDEN;
/* A block of so many pages of the region, which read as zeros; not tagged. Locked. NULL: there is no room. */
struct share_block *rs_share_block_new(uint32_t pages, uint32_t align) RS_HIDDEN;
void rs_share_block_free(struct share_block *b) RS_HIDDEN;
/* Makes two of one, the second from its page n on. Locked. NULL: there is no room, and it is as it was. */
struct share_block *rs_share_block_split(struct share_block *b, uint32_t n) RS_HIDDEN;
/* Blocks that the program has elsewhere than in the region. Where it has it from now on; 0: nowhere. Its state is what it will be. Locked. */
void rs_share_put(struct share_block *b, uintptr_t at) RS_HIDDEN;
/* The first of them that has pages of [lo, hi); NULL: there is none. Locked, or it may be another one's at once. */
struct share_block *rs_share_next(uintptr_t lo, uintptr_t hi) RS_HIDDEN;
static inline uintptr_t rs_share_address(const struct share_block *b) { return b->at ? b->at : rs_share.base + ((uintptr_t)b->page << SHARE_PAGE_BITS); }
static inline size_t rs_share_bytes(const struct share_block *b) { return (size_t)b->pages << SHARE_PAGE_BITS; }
/* Sets what a block is, and who may touch it. Locked. 0, or a negative errno. */
long rs_share_tag(struct share_block *b, enum share_state state, uint8_t key) RS_HIDDEN;
/* Calls fn for each block that is not FREE. Locked. */
void rs_share_each(void (*fn)(struct share_block *b, void *arg), void *arg) RS_HIDDEN;
/* Memory that must be open at all times (signal stacks), or of which the program says what may be done with it: what is there is never watched again. */
void rs_share_unwatch(uintptr_t p, size_t n) RS_HIDDEN;
/* A thread is to run on the stack that ends at sp, and may have no handler: the whole block is open from now on. */
void rs_share_stack(uintptr_t sp) RS_HIDDEN;
/* Nothing is watched any more; why is said once. */
void rs_share_retire(const char *why) RS_HIDDEN;
void rs_share_retire_locked(const char *why) RS_HIDDEN;
/* Address space for tables of which little is used; NULL: there is none. */
void *rs_share_sparse(size_t bytes) RS_HIDDEN;

/* --- shareheap.c: the agent's own heap. All locked but the first. ----------------------------------------------------------------- */

/* The program's malloc is the agent's own, in watched memory. False: it cannot be. */
bool rs_share_heap_begin(void) RS_HIDDEN;
/* A thread touches what is there; whether what it is now lets the thread go on as it is. */
bool rs_share_heap_touched(uintptr_t p, uint32_t number) RS_HIDDEN;
/* By an instruction that ran with that stack pointer. */
bool rs_share_heap_touched_at(uintptr_t p, uint32_t number, uintptr_t sp) RS_HIDDEN;
/* Not locked: whether it is that thread's for certain. */
bool rs_share_heap_own(uintptr_t p, uint32_t number) RS_HIDDEN;
/* As rs_share_unwatch. */
void rs_share_heap_unwatch(uintptr_t from, uintptr_t to) RS_HIDDEN;
/* The thread ends, and its key will be another's. stripped: it may have STRIPPED ones; rest: of its end. */
void rs_share_heap_end(uint32_t number, uint8_t key, bool stripped, uint16_t rest) RS_HIDDEN;
/* What that thread has alone, with that key, is RESTING from now on, but for the block that sp lies in, and what it took back too often. round: counts such calls of the thread's. */
void rs_share_heap_rest(uint32_t number, uint8_t key, uint32_t round, uint16_t rest, uintptr_t sp) RS_HIDDEN;
/* That thread's key will be another's, and it lives. rest: of now. */
void rs_share_heap_strip(uint32_t number, uint8_t key, uint16_t rest) RS_HIDDEN;
/* Nothing is watched any more. */
void rs_share_heap_open(void) RS_HIDDEN;
/* Calls fn for all memory that is there; offset: in the region. */
void rs_share_heap_each(void (*fn)(uintptr_t offset, size_t pages, void *arg), void *arg) RS_HIDDEN;
/* In a forked child all has another mapping, which everybody may access. */
void rs_share_heap_child(void) RS_HIDDEN;

/* What is there is shared, as far as it is watched, before another thread touches it. */
void rs_share_heap_shared(uintptr_t from, uintptr_t to) RS_HIDDEN;

/* --- sharesite.c ----------------------------------------------------------------------------------------------------------------- */

/* A second thread touches the block at p: later blocks of its allocation are shared from when they are handed out. Locked. */
void rs_share_found(uintptr_t p) RS_HIDDEN;
/* Whether a block that is asked for is to be such a one (rs_alloc_source). */
bool rs_share_common(uintptr_t pc, void *fp) RS_HIDDEN;
/* The calling thread, with all memory open, is about to make one that begins with this argument: what it leads to is shared before. */
void rs_share_argument(const void *arg) RS_HIDDEN;

/* What is shared, and is there, has been used by the calling thread alone for long: it may be its own, until another touches it. */
void rs_share_heap_lend(uintptr_t p, uint32_t number) RS_HIDDEN;
/* Not locked: the block there is about to be freed. Who accesses it afterwards is to be told, if it is shared. */
void rs_share_freed(uintptr_t p) RS_HIDDEN;
/* Not locked: whether it was lent to a thread, and nobody else has touched it since. */
bool rs_share_heap_lent(uintptr_t p) RS_HIDDEN;
/* That thread is about to access it by an atomic instruction, which orders what others do by movs: then it is shared. */
void rs_share_heap_atomic(uintptr_t p, uint32_t number) RS_HIDDEN;

/* --- sharerest.c: what goes from one thread to the next. Locked but the first two. ------------------------------------------------------- */

/* The calling thread alone has accessed the page for long, and others may not have for a while. */
void rs_share_alone(uint32_t number, uint64_t page) RS_HIDDEN;

/* The calling thread is about to release something, for who acquires it knows from then on what it has done. */
void rs_share_release(uint32_t number) RS_HIDDEN;
/* A thread is done with something for now: its time. Counted are the pages and blocks that name it, none yet. 0: there are too many. */
uint16_t rs_share_rest(uint32_t number) RS_HIDDEN;
void rs_share_rest_count(uint16_t rest, int more) RS_HIDDEN;
/* That thread knows all that was done up to then by another, or all threads do. */
bool rs_share_rest_known(uint16_t rest, uint32_t number) RS_HIDDEN;
/* It has taken back what was RESTING, since the processor's counter said this. */
void rs_share_took_back(uint64_t since) RS_HIDDEN;
bool rs_share_ended(uint32_t number) RS_HIDDEN;
/* Whether what was taken back so often rests in that round. */
enum { SHARE_NEVER = 15 };
static inline bool rs_share_rests(uint8_t again, uint32_t round) { return again < SHARE_NEVER && !(round & ((1u << again) - 1)); }
static inline uint64_t share_counter(void)
{
	uint32_t lo, hi;
	__asm__ volatile("rdtsc" : "=a"(lo), "=d"(hi));
	return (uint64_t)hi << 32 | lo;
}

/* --- sharelent.c: pages of blocks that are lent. All locked. ------------------------------------------------------------------------------ */

bool rs_share_lent_begin(void) RS_HIDDEN;
/* The page of a SHARED block at p has been used by the calling thread alone for long. */
void rs_share_lend(struct share_block *b, uintptr_t p, uint32_t number) RS_HIDDEN;
/* Whom it is lent to; 0: to nobody. */
uint32_t rs_share_lent_to(const struct share_block *b, uintptr_t p) RS_HIDDEN;
/* It is shared as the rest of its block. Whom it was lent to; 0: to nobody. */
uint32_t rs_share_take_back(struct share_block *b, uintptr_t p) RS_HIDDEN;
/* The block is something else from now on, or elsewhere. */
void rs_share_lent_forget(struct share_block *b) RS_HIDDEN;
/* The thread's key will be another's. */
void rs_share_lent_leave(uint32_t number) RS_HIDDEN;

/* --- shareglobal.c --------------------------------------------------------------------------------------------------------------- */

/* The calling thread is about to make another. If it is the only one, the variables of all modules but glibc's and ours become shared. */
void rs_share_globals(void) RS_HIDDEN;
/* What is not zero of pages that are there is copied; mincore(2) says which. anonymous: what is not there was never written. */
void rs_share_copy(uintptr_t to, uintptr_t from, uint32_t pages, bool anonymous) RS_HIDDEN;

/* --- sharemap.c: blocks that are not in the region ------------------------------------------------------------------------------- */

/* The program, or a library, has mapped what is at p; whether and where it was told of (`want`). Where it is from now on, which is p but for programs that are linked to a fixed address. */
void *rs_share_mapped(void *p, size_t n, int prot, int flags, const void *want) RS_HIDDEN;
/* One more mapping of what is at `from`, in place of what is at `to`. 0 or more, or a negative errno. */
long rs_share_also_at(uintptr_t from, size_t n, uintptr_t to) RS_HIDDEN;
/* Takes the place of a block's mirror, for rs_share_also_at. False: it is not free. */
bool rs_share_mirror(uintptr_t at, size_t n) RS_HIDDEN;
/* As rs_share_unwatch. */
void rs_share_maps_open(uintptr_t p, size_t n) RS_HIDDEN;
/* A call that does something with memory, before it is made, with all memory open; also where nothing is watched any more, for what was is still pages of the region's. *made: as rs_call_before's result. */
void rs_share_memory(struct rs_call *c, long *made) RS_HIDDEN;
extern uint32_t rs_share_left RS_HIDDEN;
/* In a forked child: its own are in the copy of the region at `copy`. */
void rs_share_maps_child(uintptr_t copy) RS_HIDDEN;

/* --- sharekey.c ------------------------------------------------------------------------------------------------------------------ */

bool rs_share_keys(void) RS_HIDDEN;
void rs_share_keys_free(void) RS_HIDDEN;
/* The calling thread's key, had on demand; it may have been another's until now. 0: there is none for it. Locked. */
uint8_t rs_share_key_mine(uint32_t number) RS_HIDDEN;
/* The same, but no other's. */
uint8_t rs_share_key_spare(uint32_t number) RS_HIDDEN;
/* There are keys that nobody has. Locked. */
bool rs_share_key_free(void) RS_HIDDEN;
/* The calling thread's key if it has one. Locked. */
uint8_t rs_share_key_held(void) RS_HIDDEN;
/* What the calling thread may touch when code of the program runs on it. 0: everything. */
uint32_t rs_share_closed(void) RS_HIDDEN;
/* The calling thread was let by, its accesses are told to nobody, and it goes on. */
void rs_share_loosen(void) RS_HIDDEN;
/* All is open to the calling thread, which had `rights` before and is about to make a call that may wait: its key may be taken until it is back. */
void rs_share_go(uint32_t rights) RS_HIDDEN;
/* Before anything is done by virtue of its key: it is back, and knows whether it still has one. */
void rs_share_back(void) RS_HIDDEN;
/* Gives it the rights that it had before code of the agent's, in the middle of which handlers may have run. */
void rs_share_restore(uint32_t rights) RS_HIDDEN;
/* A handler of the program's returns to what it interrupted, which is asked anew what it may touch. */
void rs_share_leave(ucontext_t *uc) RS_HIDDEN;
/* Code of the program runs, or is about to. */
void rs_share_close(void) RS_HIDDEN;
/* A frame at sp was called by a function of ours that has opened all (RS_OPENS). */
bool rs_share_opened(uintptr_t sp) RS_HIDDEN;
/* The calling thread is about to make a child on its own memory, which must not fault (it may have no handler for that), or goes on behind it: in between all is open. They nest. */
void rs_share_spawn(bool begins) RS_HIDDEN;
/* The calling thread begins, ends. */
void rs_share_thread_begin(void) RS_HIDDEN;
void rs_share_thread_end(uint32_t number) RS_HIDDEN;
/* The calling thread's alternate signal stack of ours, NULL if it has none. */
const stack_t *rs_share_spare(void) RS_HIDDEN;
/* Sets the rights of an interrupted thread; false: its context has none. */
bool rs_share_set_frame(ucontext_t *uc, uint32_t pkru) RS_HIDDEN;

/* --- sharefault.c ------------------------------------------------------------------------------------------------------------------ */

bool rs_share_faults(void) RS_HIDDEN;
/* What that thread did where others access from now on was told to nobody. It may have ordered whatever the thread knew before what others do, and is taken to have done so. Locked. */
void rs_share_pardon(uint32_t owner) RS_HIDDEN;
/* A block becomes shared. Locked. */
void rs_share_shared(struct share_block *b) RS_HIDDEN;
/* The action for SIGSEGV that the program believes to be in force. */
long rs_share_action(const struct rs_kernel_action *act, struct rs_kernel_action *old) RS_HIDDEN;
/* SIGSEGV is blocked for the program on this thread, or no longer; whether it was. */
bool rs_share_blocks(bool now) RS_HIDDEN;
bool rs_share_blocked(void) RS_HIDDEN;
/* --- sharecall.c: what the hook of system calls does before and after them; false: it is to make its own of the call (calls.c). ----------------------- */

void rs_share_calls(void) RS_HIDDEN;
/* A call that makes a process or a thread, also where nothing is watched any more: the region stays. False: it is another. */
bool rs_share_process(struct rs_call *c, long *made) RS_HIDDEN;
/* The thread is about to use GS or protection keys for itself: nothing is watched any more, and it finds both as they are natively. */
void rs_share_taken(void) RS_HIDDEN;
bool rs_share_before(struct rs_call *c, long *made) RS_HIDDEN;
bool rs_share_after(struct rs_call *c) RS_HIDDEN;

/* --- sharefork.c --------------------------------------------------------------------------------------------------------------------- */

void rs_share_before_fork(void) RS_HIDDEN;
/* Whether of a page that is not there mincore may say so only because it is swapped out. */
bool rs_share_swaps(void) RS_HIDDEN;
void rs_share_after_fork(bool child) RS_HIDDEN;
/* Makes a process by the call {number, five arguments}, which gives the child no stack and none of our memory: that is its own before it runs on it. Negative errno, pid, 0 in the child. */
long rs_share_fork(const long *call) RS_HIDDEN;
/* Calls fn on another stack. */
int rs_share_clone_on(uintptr_t top, int (*fn)(void *), void *arg) RS_HIDDEN;

/* In place of movs or stos, whose destination no prefix redirects; data: bits of enum share_string. */
enum share_string { SHARE_MOVS = 1, SHARE_REPEATED = 2 };
struct rs_access_context;
void rs_share_string(struct rs_access_context *c) RS_HIDDEN;
/* full.c: before accesses are told. False: there is nothing to tell. The thread has no more rights than it should from here on. */
struct accesses;
bool rs_share_asked(uint32_t number, const struct accesses *list) RS_HIDDEN;
/* full.c: an atomic instruction (0: a fence) before it is told, and when it has been made. Where the memory is not watched movs to it are told to nobody, and so may be what it answers. */
void rs_share_atomic(uintptr_t addr) RS_HIDDEN;
/* The stack of a thread to be made must be open at all times. */
void rs_share_attributes(const pthread_attr_t *a) RS_HIDDEN;
/* trap.c: whether a SIGTRAP is that of an instruction that was let by. */
bool rs_share_stepped(const siginfo_t *info, ucontext_t *uc) RS_HIDDEN;
/* A function of ours is about to have the region's memory accessed for the program, which is told: what of it was another thread's becomes shared. Whether all of it is judged. */
bool rs_share_touch(uint32_t number, uintptr_t p, size_t n) RS_HIDDEN;
#endif
