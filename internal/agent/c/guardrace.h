/* guardrace.h: one re-execution more of an epoch, with the program's accesses judged by the race detector. guardrace.c; docs/decisions.md, 53.
 *
 * In a nutshell. When an excursion has done what it is for, the epoch is rolled back once more, and while all threads stand the engine puts a recipe in front of each instruction of the program that accesses memory. The detector begins,
 * knowing nothing: all that was before the checkpoint comes before all of the epoch. Guard's events order threads, and what wrappers would send orders them too. At the end the kernel gives the text as it is in its files, and going forward
 * takes all else back: trampolines, the agent's tables, the detector's memory. What was found lies in the arena, and is told by whoever next tells anything. */
#ifndef RS_GUARDRACE_H
#define RS_GUARDRACE_H
#include "agent.h"

struct rs_thread;
enum { RS_GUARD_RACE_SLOWER = 16 /* patience with threads that are looked at, times the usual */ };

/* --- on threads of the program, with rs_guard_on; nothing but in that re-execution --------------------------------------------------------------- */

/* rs_config.races is set in a guarded process while it is executed again so, and never else. The thread is in an order by an object of guard's, perhaps no address: what it did up to here comes before who takes; it comes
 * behind who gave. shared: gives to those alone who take exclusively, or the other way round. */
void rs_guard_race_order(uint64_t object, bool gives, bool takes, bool shared) __attribute__((visibility("hidden")));
#define RS_GUARD_GIVES(object, shared) do { if (RS_UNLIKELY(rs_config.races)) rs_guard_race_order((object), true, false, (shared)); } while (0)
#define RS_GUARD_TAKES(object, shared) do { if (RS_UNLIKELY(rs_config.races)) rs_guard_race_order((object), false, true, (shared)); } while (0)
/* A handler runs, or what else is in no order that is known. */
void rs_guard_race_all(void) __attribute__((visibility("hidden")));
/* ring.c: room for an event that goes to the detector instead of Go, or NULL; and it is there. */
uint64_t *rs_guard_race_room(struct rs_thread *t, unsigned id, unsigned words) __attribute__((visibility("hidden")));
void rs_guard_race_commit(struct rs_thread *t) __attribute__((visibility("hidden")));
/* Before an event of t's, while nothing is executed again: tells what was found. */
extern uint32_t *rs_guard_race_untold __attribute__((visibility("hidden"))); /* NULL, or how many are not told */
void rs_guard_race_tell(struct rs_thread *t) __attribute__((visibility("hidden")));
/* It went another way from here on: what is found behind that is not believed. */
void rs_guard_race_astray(void) __attribute__((visibility("hidden")));

/* --- the coordinator --------------------------------------------------------------------------------------------------------------------------- */

/* Before the first checkpoint. -ENOMEM. */
long rs_guard_race_begin(void) __attribute__((visibility("hidden")));
bool rs_guard_race_wanted(void) __attribute__((visibility("hidden")));
/* In a re-execution: something is mapped there. */
void rs_guard_race_place(uint64_t lo, uint64_t bytes) __attribute__((visibility("hidden")));
/* World stopped: before the rollback; behind it: false: it cannot be, which is said; when the re-execution is over. Whatever came of it rs_guard_race_back before going forward: a negative errno: the text is not the program's. */
void rs_guard_race_ahead(void) __attribute__((visibility("hidden")));
bool rs_guard_race_on(void) __attribute__((visibility("hidden")));
void rs_guard_race_over(void) __attribute__((visibility("hidden")));
/* patch.c: text that is about to be patched is what its file has; rs_guard_race_back makes it so again. Negative errno. */
long rs_guard_race_pristine(uintptr_t lo, size_t bytes) __attribute__((visibility("hidden")));
long rs_guard_race_back(void) __attribute__((visibility("hidden")));
#endif
