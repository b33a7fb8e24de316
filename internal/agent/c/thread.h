/* thread.h: what thread.c and join.c share: the table of pthread_t values. */
#ifndef RS_THREAD_H
#define RS_THREAD_H
#include "core.h"

/* What is known of a thread by its pthread_t. Lives from before pthread_create until the thread is joined, or has ended detached, and then
 * on as `gone`, for a second join to be recognised, until the handle is given to a new thread. */
struct rs_handle {
	uint64_t handle;           /* 0: not known yet, or not any more */
	uint32_t number;
	uint32_t state;            /* bits below */
	uint32_t settled_at;       /* stack of the join (also while it waits) or detach */
	uint32_t created_at;
	struct rs_handle *next;    /* in its bucket, or in the free list */
	struct rs_handle *older;   /* gone: the next to be forgotten */
	/* For the new thread. */
	struct rs_thread *t;
	union { void *(*start)(void *); thrd_start_t start_c11; };
	void *arg;
	uint64_t stack_size;
};
enum { LISTED = 1, DETACHED = 2, JOINED = 4, ENDED = 8, GONE = 16, JOINING = 32 };


/* Between these the table may be looked at and changed; all signals are blocked. */
uint64_t rs_handles_take(void) RS_HIDDEN;
void rs_handles_give(uint64_t mask) RS_HIDDEN;
/* Not between those two: number, state and settled_at of the handle as they are now, and where they stand. False: not known. */
bool rs_handle_read(uint64_t handle, struct rs_handle *copy, struct rs_handle **where) RS_HIDDEN;
/* The thread has ended, and nobody may join it any more. */
void rs_handle_retire(struct rs_handle *h) RS_HIDDEN;
#endif
