/* checkshared.h: memory that other processes see, while an epoch is executed again. Coordinator only, the world stopped. Ground rules: guard.h. */
#ifndef RS_CHECKSHARED_H
#define RS_CHECKSHARED_H
#include "checkmap.h"

/* The most bytes of address space of such mappings that are followed: each checkpoint reads what is there. */
#define RS_SHARED_MOST (64ul << 20)

/* Once. mem: /proc/self/mem. */
long rs_shared_begin(int mem) RS_HIDDEN;
/* Is it memory that the program writes and others see? */
bool rs_shared_is(const struct range *r) RS_HIDDEN;
/* Its content as it is goes into frames. Where it cannot be known rs_shared_may says no until the next time. How many pages were copied; -ENOMEM. */
long rs_shared_keep(const struct map *m) RS_HIDDEN;
/* Can all that was shared at the checkpoint be exchanged now, at the epoch's end, and be put back? */
bool rs_shared_may(const struct map *kept, const struct map *end) RS_HIDDEN;
/* In its place comes memory of this process alone, with the content that was kept. Negative errno: some of it is exchanged, and some is not. */
long rs_shared_away(const struct map *kept, const struct map *end) RS_HIDDEN;
/* Back to where it was, if it is away. What stands in for what was unmapped is left where it is. */
long rs_shared_home(void) RS_HIDDEN;
/* What stands in for shared memory is called by its name. */
void rs_shared_name(struct range *r) RS_HIDDEN;
#endif
