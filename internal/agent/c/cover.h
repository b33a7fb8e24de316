/* cover.h: code that nobody has run yet, where the engine has put int3 in place of the first byte of each instruction that is to be patched (internal/engine/cover.go). */
#ifndef RS_COVER_H
#define RS_COVER_H
#include "core.h"
#include <ucontext.h>

/* Under the lock of requests: the text [lo, lo + bytes) is covered from now on, what it is without lies in a file, which `file` names (struct rs_patch_cover and the path, in `room` bytes); bytes 0: it is covered no more.
 * 0, or a negative errno: it must not be covered. */
long rs_cover(uintptr_t lo, size_t bytes, const void *file, size_t room) RS_HIDDEN;
/* A thread has met int3 at `at`, in a handler with all signals blocked: where it goes on. 0: the int3 is the program's own. */
uintptr_t rs_cover_met(uintptr_t at) RS_HIDDEN;
/* All is patched that is covered: soon nobody can ask any more (a forked child, a box), or a stack of so many bytes, as that which a handler is about to run on may be, has no room for another signal's frame. */
void rs_cover_all(void) RS_HIDDEN;
void rs_cover_stack(size_t bytes) RS_HIDDEN;
void rs_cover_handler(const ucontext_t *uc) RS_HIDDEN;
#endif
