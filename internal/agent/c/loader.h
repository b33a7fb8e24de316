/* loader.h: ld.so's lock, and the place where it tells debuggers of objects (loader.c). */
#ifndef RS_LOADER_H
#define RS_LOADER_H
#include "agent.h"

/* Around a call that loads or unloads objects: what others did in such calls before comes before it. tell: what initialisers do counts, as nobody finds the objects but who is given what the call returns, or opens them, too.
 * t NULL: the call does not return to us. */
struct rs_loading { bool held, outer; };
struct rs_loading rs_loader_enter(struct rs_thread *t, bool tell) __attribute__((visibility("hidden")));
void rs_loader_leave(struct rs_loading l) __attribute__((visibility("hidden")));
/* In such a call, when the objects are there: the engine was asked for some (of a call that failed they have gone), or for all of them. */
bool rs_loader_asked(struct rs_loading l) __attribute__((visibility("hidden")));
bool rs_loader_asked_all(struct rs_loading l) __attribute__((visibility("hidden")));
/* What initialisers have registered for exit or fork is about to be run: it comes after all that ran in calls that have returned. */
void rs_loader_behind(void) __attribute__((visibility("hidden")));

/* Where ld.so calls when objects come and go (r_brk), 0: it is not known; and what the engine has it jump to. */
uintptr_t rs_loader_state(void) __attribute__((visibility("hidden")));
void rs_loader_hook(void) __attribute__((visibility("hidden")));
/* It does jump there. */
void rs_loader_hooked(void) __attribute__((visibility("hidden")));
void rs_loader_after_fork(void) __attribute__((visibility("hidden")));
#endif
