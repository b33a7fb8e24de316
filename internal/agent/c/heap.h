/* heap.h: what heap.c offers to heapname.c, new.c and dl.c. */
#ifndef RS_HEAP_H
#define RS_HEAP_H
#include "agent.h"

/* Call after a block was handed out (p may be NULL), with the interposed function's caller and frame. */
void rs_heap_got(void *p, size_t n, unsigned kind, uintptr_t pc, void *fp);
/* Call before a block is given back (p may be NULL). */
void rs_heap_give(void *p, unsigned kind, uintptr_t pc, void *fp);
/* Call before a real operator new and after a real operator delete: what malloc and free are told about in between is the same block. */
void rs_heap_operator(void);
/* Has the agent's own heap begin, if the session asks for it: before there are other threads. */
void rs_heap_begin(uint32_t word) __attribute__((visibility("hidden")));
/* The program has a heap of its own (a library or itself), which knows nothing of ours; guard bytes or epochs were asked for. */
bool rs_heap_foreign(void) __attribute__((visibility("hidden")));
/* Says what came of that, once events can be sent. */
void rs_heap_begun(struct rs_thread *t) __attribute__((visibility("hidden")));
/* Of a block that begins at p and lives, if it is remembered: its length and the stack of its allocation. */
bool rs_heap_known(uintptr_t p, size_t *size, uint32_t *stack) __attribute__((visibility("hidden")));
/* The same stack, had with general registers alone, and by whom a wrong one does no harm; 0: it is not remembered. */
uint32_t rs_heap_stack_of(uintptr_t p) __attribute__((visibility("hidden")));
/* What size the block had that was freed last of those at p. */
bool rs_heap_gone(uintptr_t p, size_t *size) __attribute__((visibility("hidden")));
/* From now on blocks may be had and given back past us. */
void rs_heap_bypassed(void);
/* heappast.c, of each loaded object: that of the program's allocator, and then whether another one has dealings with it past us, of which a thread says so. */
struct dl_phdr_info;
void rs_heap_allocator(const struct dl_phdr_info *info) __attribute__((visibility("hidden")));
void rs_heap_imports(const struct dl_phdr_info *info) __attribute__((visibility("hidden")));
void rs_heap_say_past(struct rs_thread *t) __attribute__((visibility("hidden")));

/* --- to heapname.c ----------------------------------------------------------------------------------------------------- */

#define RS_HEAP_GOT(p, n, kind) rs_heap_got((p), (n), RS_ALLOC_##kind, RS_CALLER(), __builtin_frame_address(0))
#define RS_HEAP_GIVE(p, kind) rs_heap_give((p), RS_ALLOC_##kind, RS_CALLER(), __builtin_frame_address(0))

/* Blocks for who asks before the real functions are known. They are zero, and never used twice. */
void *rs_heap_early(size_t align, size_t n) __attribute__((visibility("hidden")));
bool rs_heap_is_early(const void *p) __attribute__((visibility("hidden")));
size_t rs_heap_early_size(const void *p) __attribute__((visibility("hidden")));
/* The real functions, or our own heap's where the block is, or is to be, its. p may be no block at all. */
void rs_heap_free_real(void *p, void (*real)(void *)) __attribute__((visibility("hidden")));
void *rs_heap_memalign_real(void *(*real)(size_t, size_t), size_t align, size_t n, uintptr_t pc, void *fp) __attribute__((visibility("hidden")));
/* Our own heap's, which is in use; align: a power of two. */
void *rs_heap_memalign_ours(size_t align, size_t n, uintptr_t pc, void *fp) __attribute__((visibility("hidden")));
/* All of a realloc. */
void *rs_heap_resize(void *(*real)(void *, size_t), void *old, size_t n, unsigned kind, uintptr_t pc, void *fp) __attribute__((visibility("hidden")));
#endif
