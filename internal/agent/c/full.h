/* full.h: what full.c (accesses that recipes tell, where the agent looks for races itself) and tell.c (the code that recipes call) share. */
#ifndef RS_FULL_H
#define RS_FULL_H
#include "access.h"
#include "race_core.h"

/* An access that tell.c let pass, since the shadow says that the thread told as much of these bytes in this time. Of a read the cell of the shadow and its first point as it was then: what the read
 * found is nothing new only if that is still so when it has been made. */
struct rs_full_last { const struct race_cell *cell; uint64_t e; uintptr_t addr, ret; };

/* A stack below an instruction's own frame: the words that it was made of, from rsp on, as long as nothing else changed that a walk depends on. Sites of one frame have one. id: its place, and how many there were before
 * it, as one that takes its place is another; 0: none. */
enum { RS_FULL_CHAINS = 1024 };
struct rs_full_chain { uint64_t id; uintptr_t rsp; uint32_t n, number, modules, generation; uint16_t at[RS_TRAIL]; uint64_t word[RS_TRAIL]; };
_Static_assert(sizeof(struct rs_full_chain) == 512, "and in tell.c");

/* The site (rs_race_intern) of accesses that a recipe tells, from one stack, with the locks that were held: two, of more the first's object is a sum of all (fullquick.c). The recipe's mark lies at ret, where another recipe's may lie by now. */
enum { RS_FULL_HELD = 2 };
struct rs_full_site { uintptr_t ret; uint64_t mark, chain; uintptr_t rbp; uint32_t has_rbp, stack, id, held; struct rs_held_slot first; };

/* A thread's memory (rs_thread.accesses). tell.c reads it, and writes last, read, write, store and walked. */
enum { RS_FULL_PAGES = 1024, RS_FULL_SEEN = 65536, RS_FULL_WALKED = 256, RS_FULL_SITES = 32768 };
struct rs_full {
	const struct rs_full_last *last; /* &none, &force, &read or &write; &force: the next access comes here */
	const uint64_t *epoch;           /* of the race thread */
	struct rs_full_last none, force, read, write; /* of none and write the cell is one that never changes */
	uint8_t mask[RS_FULL_SIZES - 1][8];  /* bytes of a cell that an access of 1, 2, 4, 8 bytes at an offset has; 0: it goes beyond */
	const struct race_page *page[RS_FULL_PAGES]; /* by rs_full_page_at; it may be another page, or one of none, which its number says */
	/* What is known of a cell (struct rs_race_masks) as long as its first point is of this thread and time, or as it was then: addr>>19<<24 | mov<<16 | write<<8 | read. */
	struct { uint64_t what, epoch, first, info; } seen[RS_FULL_SEEN];
	/* The stacks of reads that were told early, for when they are told again: another of the same instruction, bytes and time races with the same. */
	struct { uintptr_t addr, ret; uint64_t epoch; uint32_t stack; } walked[RS_FULL_WALKED];
	struct rs_full_site site[RS_FULL_SITES]; /* fullquick.c: by recipe, stack pointer and lock */
	struct rs_held_slot second[RS_FULL_SITES]; /* of sites with two locks */
	struct rs_full_chain chain[RS_FULL_CHAINS];
	uint64_t chains;                 /* how many there have been */
	uint32_t number;                 /* of the thread */
	uintptr_t busy;                  /* where on the stack rs_full_take began; 0: it does not run */
	struct touch waits;              /* a read, or an atomic instruction's end; kind 0: none */
	struct touch store;              /* a plain store after which the thread accessed nothing else, for a fence that may follow */
	const struct rs_access_context *at; /* whose access is being told, before it is made; NULL: nobody's */
};

static inline unsigned rs_full_page_at(uint64_t number) { return (uint32_t)number * 0x9e3779b1u >> 22; } /* heaps of threads lie 64 MiB apart */
_Static_assert(RS_FULL_PAGES == 1 << (32 - 22), "and in tell.c");
/* full.c: what tell.c may find of a page from now on. */
void rs_full_keep_page(struct rs_full *m, uint64_t number, const struct race_page *g) RS_HIDDEN;
/* full.c: the stack of a read that was told before it was made, for when it is told again. */
void rs_full_walked(struct rs_full *m, uintptr_t addr, uintptr_t ret, uint32_t stack) RS_HIDDEN;

/* tellnew.c: whether pc is in its code; and if so, g are the registers of a thread that is there, with which it will not go on: what it was about to store is, and registers are the program's that only this code saves.
 * Returns whether the flags are in rax; added: when the first step back was made. */
bool rs_new_has(uintptr_t pc) RS_HIDDEN;
bool rs_new_view(greg_t *g, uintptr_t pc, bool *added) RS_HIDDEN;
#endif
