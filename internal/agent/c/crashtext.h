/* crashtext.h: what libraries know of an abort: glibc's last words, an exception that nobody caught. */
#ifndef RS_CRASHTEXT_H
#define RS_CRASHTEXT_H
#include "agent.h"

/* Before the program runs: looks up where libraries keep it. */
void rs_crashtext_begin(void) __attribute__((visibility("hidden")));
/* Is the instruction in one of the libraries that abort for those who call them: the C library, libstdc++, libgcc? */
bool rs_crashtext_aborts(struct rs_thread *t, uintptr_t pc) __attribute__((visibility("hidden")));
/* The thread is about to call glibc's abort for the program: glibc itself has said nothing of it. */
void rs_crashtext_abort(void) __attribute__((visibility("hidden")));
/* The heap, ours, has said what is broken, and aborts. */
bool rs_crashtext_of_heap(void) __attribute__((visibility("hidden")));
/* Events `crash-text` of this thread's abort, in its handler. */
void rs_crashtext_tell(struct rs_thread *t, const void *ucontext) __attribute__((visibility("hidden")));
#endif
