/* guardlogs.h: what guardlog.c (a thread's log) and guardlogs.c (all of them, between epochs) have in common, and nobody else needs. General registers only. */
#ifndef RS_GUARDLOGS_H
#define RS_GUARDLOGS_H
#include "guardlog.h"
#include "guardsync.h"

enum { RS_GUARD_SPARES = 1 << 15 };

/* Private memory, which goes back with the threads. */
struct rs_guard_own { struct rs_guard_slot slot[RS_GUARD_OBJECTS]; struct rs_guard_node node[RS_GUARD_LOGS + RS_GUARD_SPARES]; char below[RS_GUARD_LOGS][RS_GUARD_BELOW_ROOM]; };

struct rs_guard_parts {
	struct rs_guard_world *world;
	struct rs_guard_log *logs, *spares;
	struct rs_guard_object *objects;
	uint32_t *used;            /* the objects in use */
	struct rs_guard_own *own;
};

/* By rs_guard_log_begin: from here on rs_guard_on is set. */
void rs_guard_log_parts(const struct rs_guard_parts *p) RS_HIDDEN;
/* Those of threads that have ended without a word. */
void rs_guard_free_spares(void) RS_HIDDEN;
/* What has the tickets of an event of this kind on this object. */
uint64_t rs_guard_key_of(uint64_t what) RS_HIDDEN;

#endif
