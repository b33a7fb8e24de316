/* checkframe.h: where a checkpoint keeps the content of pages, by their addresses. Coordinator only; see checkpoint.c. */
#ifndef RS_CHECKFRAME_H
#define RS_CHECKFRAME_H
#include "guard.h"

/* Negative errno. */
long rs_frames_begin(void) RS_HIDDEN;
/* The numbers of the frames of page and those behind it, 0 where there is none, and of how many pages they are at least; NULL: all these have none. */
uint32_t *rs_frames_of(uint64_t page, uint64_t *pages) RS_HIDDEN;
char *rs_frame(uint32_t number) RS_HIDDEN;
/* Of this page, made if it has none; NULL: no memory. */
char *rs_frame_make(uint64_t page) RS_HIDDEN;
/* Pages of [lo,hi) have no content any more. */
void rs_frames_drop(uint64_t lo, uint64_t hi) RS_HIDDEN;
/* Spans of RS_SPAN bytes, in which there are frames, may be marked. _marked: whether the one at `at` is; *end, up to hi: where that changes. */
#define RS_SPAN (64 * RS_PAGE)
bool rs_frames_marked(uint64_t at, uint64_t hi, uint64_t *end) RS_HIDDEN;
void rs_frames_mark(uint64_t at, bool mark) RS_HIDDEN;
/* Behind each checkpoint: what the last ones had no use for is given back to the kernel. */
void rs_frames_rest(void) RS_HIDDEN;
/* How many there are. */
uint64_t rs_frames_count(void) RS_HIDDEN;
#endif
