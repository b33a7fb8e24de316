/* loader.h: ld.so's lock, and the place where it tells debuggers of objects (loader.c). */
#ifndef RS_LOADER_H
#define RS_LOADER_H
#include "agent.h"

/* Around a call that loads or unloads objects: what others did in such calls before comes before it. What rs_loader_enter gives, rs_loader_leave is given. t may be NULL. */
bool rs_loader_enter(struct rs_thread *t) __attribute__((visibility("hidden")));
void rs_loader_leave(bool held) __attribute__((visibility("hidden")));
/* By the one who is in such a call, when the objects are there: the engine was asked for all of them already, or it was for some (of a call that failed they have gone). */
bool rs_loader_asked_all(bool held) __attribute__((visibility("hidden")));
bool rs_loader_asked(bool held) __attribute__((visibility("hidden")));

/* Where ld.so calls when objects come and go (r_brk), 0: it is not known; and what the engine has it jump to. */
uintptr_t rs_loader_state(void) __attribute__((visibility("hidden")));
void rs_loader_hook(void) __attribute__((visibility("hidden")));
/* It does jump there. */
void rs_loader_hooked(void) __attribute__((visibility("hidden")));
void rs_loader_after_fork(void) __attribute__((visibility("hidden")));
#endif
