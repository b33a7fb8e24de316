/* guardnote.h: what is in the log of a system call, for those that write it (guardsys.c, guardsysquick.c) and read it (guardsysfollow.c). */
#ifndef RS_GUARDNOTE_H
#define RS_GUARDNOTE_H
#include "guardsys.h"
#include "guardsignal.h"

/* What is in the log of a call, before the pieces of memory that it wrote. */
struct rs_guard_noted {
	uint64_t check;            /* hash of the arguments */
	uint64_t data;             /* of what the call read from memory, or what it read from a file */
	uint64_t offset;           /* REVOCABLE; or a ticket (of_map); or by order: a ticket, and in the upper half how many there were afterwards */
	uint16_t file;             /* 0: none */
	uint8_t class;
	uint8_t order;             /* RS_GUARD_GIVES, RS_GUARD_TAKES */
	uint32_t pieces;           /* REVOCABLE: behind how many calls that overwrite what was read (guardundo.h) */
};
struct rs_guard_piece { uint64_t at, bytes; }; /* and the bytes, padded to eight */

/* Does nothing until it is over, and may wait for others. */
bool rs_guard_may_wait(const struct rs_call *c, unsigned class) RS_HIDDEN;

enum { RS_GUARD_WAKES = RS_GUARD_SIGNALS_ORDER }; /* handlers have a ticket of it, too (guardsignal.c) */
extern struct rs_guard_object *rs_guard_wakes RS_HIDDEN; /* NULL: no call is quick */
/* RS_GUARD_GIVES, RS_GUARD_TAKES, and the note's offset with their tickets. Behind the call. */
uint64_t rs_guard_order_of(const struct rs_call *c, uint8_t class, uint8_t *order) RS_HIDDEN;

/* A place that one thread gives up another may be given. Their order is an object of calls. */
enum { RS_GUARD_PLACES = SYS_mmap };
static inline bool rs_guard_of_map(unsigned number) { return number == SYS_mmap || number == SYS_munmap || number == SYS_mremap; }

/* What is recorded of a file that changes: reads of so many bytes, while the thread's log has so many. Often overwritten are small pieces; for the rest the epoch ends, as for what is read the first time. */
enum { RS_GUARD_RECORDED = 64 << 10, RS_GUARD_RECORDED_LOG = 1 << 20 };
/* What is read of a file that changes is kept, if that is not much. */
static inline bool rs_guard_keeps_data(const struct rs_guard_log *t, const struct rs_call *c) { return c->arg[2] <= RS_GUARD_RECORDED && t->bytes_at < RS_GUARD_RECORDED_LOG; }

/* The frame stays below the program's stack pointer, where a recording and its re-execution must leave the same. */
static inline void rs_guard_leave_frame(struct rs_call *c)
{
	c->start = c->see = c->ticks = c->begun = c->moved = c->guard_check = c->guard_offset = 0;
	c->guard_room = c->guard_file = c->guard_class = c->guard_state = 0;
	c->guard_again = c->left = 0;
	rs_os_clear(&c->left_now, sizeof c->left_now + sizeof c->lent);
}

/* guardsysfollow.c: a call of a re-execution. 0: done; 1: to be made; -1: the re-execution is over. */
long rs_guard_sys_follow(struct rs_guard_log *t, struct rs_call *c) RS_HIDDEN;
/* guardsys.c: a call that was made is over. */
void rs_guard_sys_over(struct rs_call *c) RS_HIDDEN;
/* guardread.c: a read of the recording once more. True: it gave the same; else got says how much came, and hash what. */
bool rs_guard_read_again(const struct rs_call *c, const struct rs_guard_noted *e, long result, long *got, uint64_t *hash) RS_HIDDEN;

/* Before the first checkpoint. */
void rs_guard_sys_quick_begin(void) RS_HIDDEN;
#endif
