/* opened.h: functions of ours that do to the program's memory what the program called them for. Where that memory is watched by protection keys (share.h) they and libc's functions they call would fault
 * at each access, and their instructions are not patched. */
#ifndef RS_OPENED_H
#define RS_OPENED_H
#include "agent.h"
#include "os.h"

struct rs_opened { uintptr_t outer; bool did; };
void rs_share_open(struct rs_opened *o) __attribute__((visibility("hidden")));
void rs_share_shut(struct rs_opened *o) __attribute__((visibility("hidden")));
static inline void rs_opened_end(struct rs_opened *o)
{
	if (RS_UNLIKELY(o->did))
		rs_share_shut(o);
}
/* A declaration: all memory is open to this thread until the block ends. An exception or longjmp that passes by leaves it open until the thread next calls such a function or the kernel, or tells an access. */
#define RS_OPENS() \
	__attribute__((cleanup(rs_opened_end))) struct rs_opened opened_ = {0, false}; \
	if (RS_UNLIKELY(rs_share_on)) \
		rs_share_open(&opened_)

/* Code of the program is called from within such a block, and has returned. */
uintptr_t rs_share_enter_handler(void) __attribute__((visibility("hidden")));
void rs_share_leave_handler(uintptr_t was) __attribute__((visibility("hidden")));
#endif
