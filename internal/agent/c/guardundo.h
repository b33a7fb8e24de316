/* guardundo.h: what was in files where an epoch of `guard` overwrites what it has read, so that the reads can be made again. See guardread.h. */
#ifndef RS_GUARDUNDO_H
#define RS_GUARDUNDO_H
#include "guardread.h"

/* Before the first checkpoint. -ENOMEM. */
long rs_guard_undo_begin(void) RS_HIDDEN;
/* Another epoch begins, world stopped. */
void rs_guard_undo_epoch(void) RS_HIDDEN;
/* How many calls of this epoch have overwritten what was read: noted before a read. */
uint32_t rs_guard_undo_now(void) RS_HIDDEN;
/* Before a call that is about to overwrite: what is there is kept. -ENOSPC: there is no more room in this epoch; other negative errno: it cannot be. */
long rs_guard_undo_keep(const struct rs_call *c, const struct rs_guard_over *over) RS_HIDDEN;
/* In a re-execution: makes of n bytes at `to`, read of the file at `offset` as it is now, those that a read had behind `now` such calls. */
void rs_guard_undo_put(struct rs_guard_name file, uint64_t offset, uint32_t now, char *to, size_t n) RS_HIDDEN;
#endif
