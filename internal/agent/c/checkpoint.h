/* checkpoint.h: memory and mappings of the process as they were in a stop, and the way back to them. Coordinator only, the world stopped. */
#ifndef RS_CHECKPOINT_H
#define RS_CHECKPOINT_H
#include "guard.h"

struct rs_checkpoint_stats {
	uint64_t ranges;           /* private mappings kept */
	uint64_t pages;            /* with content, kept */
	uint64_t copied;           /* by the last checkpoint, or put back by the last rollback */
	uint64_t dropped;          /* made untouched again by the last rollback */
	uint64_t remapped;         /* pieces of the map that the last rollback mapped, unmapped or protected */
	uint64_t ns;
	uint32_t tracking;         /* RS_CHECKPOINT_… */
	uint32_t again;            /* bytes that every rollback leaves alone, besides the arena: their number of pieces */
};
enum { RS_CHECKPOINT_WP = 1 /* userfaultfd's asynchronous write protection */, RS_CHECKPOINT_SCAN = 2 /* PAGEMAP_SCAN */ };

/* Once. task: /proc/self/task. plain: no write protection, though the kernel has it: everything is copied each time. */
long rs_checkpoint_begin(int task, bool plain) RS_HIDDEN;
/* Keeps all private memory but the arena's, text and what the kernel maps, and what is there of memory that others see. What had been kept is replaced, also when it fails (-ENOMEM, -E2BIG): then there is nothing to go back to. */
long rs_checkpoint_keep(void) RS_HIDDEN;
/* Memory, mappings and brk as they were. Other than 0: nothing can be said of the process's memory any more. */
long rs_checkpoint_back(void) RS_HIDDEN;
/* Behind it, for a re-execution: what others see is out of its reach, and memory with the content of the checkpoint in its place, until the next rs_checkpoint_back or rs_checkpoint_end_forward. Only where rs_checkpoint_ways says BOTH_WAYS. Other than 0: as of rs_checkpoint_back. */
long rs_checkpoint_aside(void) RS_HIDDEN;
/* n bytes from p are left as they are by every rollback to this checkpoint: what the kernel writes by itself. */
long rs_checkpoint_leave(uintptr_t p, size_t n) RS_HIDDEN;
const struct rs_checkpoint_stats *rs_checkpoint_stats(void) RS_HIDDEN;
/* What the pages of a piece of a mapping are now. fresh: written since the checkpoint, or nobody knows. */
struct rs_checkpoint_piece { uint64_t lo, hi; bool content, fresh, file; };
/* A mapping of now: what must be the same for it to be the same. */
struct rs_checkpoint_range { uint64_t lo, hi, device, inode, bias; uint32_t prot; bool shared, stack, kept; };
/* Calls range for every mapping in order, and piece (if it is `kept`) for all its pages, in order. The first negative answer ends it and is returned. */
long rs_checkpoint_each(long (*range)(const struct rs_checkpoint_range *), long (*piece)(const struct rs_checkpoint_piece *)) RS_HIDDEN;
/* The content kept of a page, or NULL; the first page from `page` on that has one, or hi. */
const void *rs_checkpoint_page(uint64_t page) RS_HIDDEN;
uint64_t rs_checkpoint_next(uint64_t page, uint64_t hi) RS_HIDDEN;
/* The content of a page now. */
long rs_checkpoint_read(void *to, uint64_t page) RS_HIDDEN;
/* Writes to memory whatever its protection, such as text. */
long rs_checkpoint_write(uint64_t at, const void *from, size_t n) RS_HIDDEN;

/* checkend.c: keeps what was written since the checkpoint, beside it. */
long rs_checkpoint_end_begin(void) RS_HIDDEN; /* once, before the first checkpoint */
long rs_checkpoint_end_keep(void) RS_HIDDEN;
/* A new epoch begins: nothing goes forward to the end of the last one any more. */
void rs_checkpoint_end_rest(void) RS_HIDDEN;
/* Memory, mappings and brk as they were then, whatever happened since rs_checkpoint_back. Other than 0: as of that. */
long rs_checkpoint_end_forward(void) RS_HIDDEN;
/* For it: `content` of a page: true: it was kept, and p is it, or NULL, if it had none; next: the first page from `page` on that was kept, or hi. */
struct rs_checkpoint_kept { bool (*content)(uint64_t page, const char **p); uint64_t (*next)(uint64_t page, uint64_t hi); };
/* The map and brk of now are those to go forward to. */
long rs_checkpoint_mark(void) RS_HIDDEN;
long rs_checkpoint_forward(const struct rs_checkpoint_kept *kept) RS_HIDDEN;
/* After it: is there a way from here to the checkpoint, and one back here? SHARED: others would see what a re-execution writes, as what they see too cannot be exchanged for other memory (checkshared.h). NO_FILE: it is to be mapped again, and cannot be. */
enum rs_checkpoint_way { RS_CHECKPOINT_BOTH_WAYS, RS_CHECKPOINT_SHARED, RS_CHECKPOINT_NO_FILE };
enum rs_checkpoint_way rs_checkpoint_ways(void) RS_HIDDEN;
/* Is memory now as it was kept then? skip: n pairs [lo,hi) that do not count. 0: yes. 1: *at is the first address that differs; *was, *is eight bytes there. 2: what is mapped at *at differs. */
long rs_checkpoint_end_same(const uint64_t *skip, unsigned n, uint64_t *at, uint64_t *was, uint64_t *is) RS_HIDDEN;
/* The lowest address of the mapping that p is in, by the last rs_checkpoint_each; p: none. */
uint64_t rs_checkpoint_mapping(uint64_t p) RS_HIDDEN;
/* The protection (PROT_…) that private memory had at the checkpoint; -1: there was none. */
int rs_checkpoint_protection(uint64_t p) RS_HIDDEN;
/* The pieces of rs_checkpoint_leave. */
unsigned rs_checkpoint_left(const uint64_t **pieces) RS_HIDDEN;
#endif
