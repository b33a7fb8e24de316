/* thread.h: what thread.c, join.c and handle.c share: the table of pthread_t values. */
#ifndef RS_THREAD_H
#define RS_THREAD_H
#include "core.h"

/* What is known of a thread by its pthread_t. Lives from before pthread_create until the thread is joined, or has ended detached, and then
 * on as `gone`, for a second join to be recognised, until the handle is given to a new thread. */
struct rs_handle {
	uint64_t handle;           /* 0: not known yet, or not any more */
	uint64_t who;              /* number << 32 | state, changed as one: a late word about a thread does not reach the node's next one. 0: free */
	uint32_t settled_at;       /* stack of the join (also while it waits) or detach */
	struct rs_handle *next;    /* in its bucket, or in the free list */
	struct rs_handle *older;   /* gone: the next to be forgotten */
	/* For the new thread. */
	struct rs_thread *t;
	union { void *(*start)(void *); thrd_start_t start_c11; };
	void *arg;
	uint64_t stack_size;
	bool own_stack;            /* its memory is the program's */
	bool trap_blocked;         /* its creator has SIGTRAP blocked (trap.c) */
};
enum { LISTED = 1, DETACHED = 2, JOINED = 4, ENDED = 8, GONE = 16, JOINING = 32 };
#define WHO(number, state) ((uint64_t)(number) << 32 | (state))
static inline uint32_t rs_who_number(uint64_t who) { return (uint32_t)(who >> 32); }
static inline uint32_t rs_who_state(uint64_t who) { return (uint32_t)who; }

/* A node that is nobody's, handle 0; NULL: no memory. */
struct rs_handle *rs_handle_new(void) RS_HIDDEN;
/* Gives back a node that was never listed. */
void rs_handle_drop(struct rs_handle *h) RS_HIDDEN;
/* From now on handle is h's thread's, whose number it is, unless that is so already: a thread that had it before is no more. By the new thread, its
 * creator, or both. */
void rs_handle_list(struct rs_handle *h, uint32_t number, uint64_t handle) RS_HIDDEN;
/* Nothing is known of the thread that this handle is of now. */
void rs_handle_unlist(uint64_t handle) RS_HIDDEN;
/* The handle as it is now; `where` is its node. False: not known. */
struct rs_handle_view { struct rs_handle *where; uint64_t who; uint32_t settled_at; };
bool rs_handle_read(uint64_t handle, struct rs_handle_view *v) RS_HIDDEN;
/* Sets and clears bits of the state of thread `number`, unless one of `unless` is set or the node is another's by now. A thread that nobody can join any
 * more becomes GONE. */
bool rs_handle_change(struct rs_handle *h, uint32_t number, uint32_t set, uint32_t clear, uint32_t unless) RS_HIDDEN;
/* The same, of where it was done. */
void rs_handle_settle(struct rs_handle *h, uint32_t number, uint32_t set, uint32_t clear, uint32_t unless, uint32_t stack) RS_HIDDEN;
/* In a forked child: of the handles, own (may be NULL) is left. */
void rs_handles_after_fork(struct rs_handle *own) RS_HIDDEN;
#endif
