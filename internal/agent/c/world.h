/* world.h: all threads of the process but the coordinator: stopped in a signal handler, and let go again. */
#ifndef RS_WORLD_H
#define RS_WORLD_H
#include "guard.h"

/* glibc's SIGSETXID: libc's functions neither block it nor let a program have it, and its own helper threads, which block everything else, leave it open. It is shared with glibc: what is not ours is
 * passed on to its handler. */
#define RS_WORLD_SIGNAL 33
#define RS_WORLD_THREADS 8192
#define RS_WORLD_FRAME (16u << 10)

/* A frame as the kernel builds it for a handler. rt_sigreturn takes it from anywhere. */
struct rs_world_frame {
	uint64_t back;             /* rsp is behind this when rt_sigreturn is called */
	ucontext_t uc;             /* as much as the kernel knows of it */
};

/* Low two bits of state; above them the number of the stop. GOING: let go, and not yet out of what is its entry's. */
enum { RS_WORLD_RUNS, RS_WORLD_WANTED, RS_WORLD_STOPPED, RS_WORLD_GOING };
enum { RS_WORLD_GO, RS_WORLD_BACK, RS_WORLD_EXIT }; /* what a stopped thread does when it is let go */

struct rs_world_thread {
	uint32_t tid;              /* 0: nobody's */
	uint32_t state;            /* futex */
	uint32_t listed;           /* the round in which /proc last named it */
	uint32_t order;
	ucontext_t *uc;            /* stopped: its frame, on its own stack */
	uint64_t fs;               /* fs base */
	uint64_t frame_bytes;      /* of the saved frame's XSAVE area; 0: it has none, as the thread was not there */
	struct rs_guard_call call, saved_call, end_call;
	struct rs_guard_rest rest;
	uint64_t kept_ns;          /* when the frame was kept */
	char *stack;               /* its handler's; its highest byte's successor */
	struct rs_world_frame *saved, *out, *end; /* RS_WORLD_FRAME bytes each: at the checkpoint, what it returns from, and at the recording's end */
	uint64_t end_bytes, end_ns;
	/* Of threads that were born, or are kept from ending, in an epoch (guardthread.c). */
	uint32_t unborn;           /* 1: it waits for its birth in a re-execution, stopped; 2: and a stop has begun meanwhile */
	uint32_t shed;             /* futex: to give up its rseq area, stopped */
	bool restore;              /* as it goes: what the kernel clears at its end, and its rseq area (0: none), are these */
	uintptr_t clear_tid, rseq;
};

/* Coordinator. Everything below is called by it alone.
 *
 * Stops all threads but the caller. 0, or a negative errno with all threads let go: -EBUSY: a thread does not come (it waits for a vfork child, or has the signal blocked) within ms; -EAGAIN: no
 * signal can be queued (RLIMIT_SIGPENDING); -ENOMEM, -EMFILE: entries; others: /proc. */
long rs_world_stop(uint32_t ms) RS_HIDDEN;
/* Our signal comes to our handler from here on, until glibc takes it. Negative errno. */
long rs_world_own_action(void) RS_HIDDEN;
/* All stopped threads do what their order says. */
void rs_world_go(void) RS_HIDDEN;
/* While the world is stopped: the threads whose order is RS_WORLD_EXIT do that, and are gone when this returns. */
long rs_world_end_ordered(void) RS_HIDDEN;
/* The i-th entry, or NULL behind the last; entries with tid 0 are nobody's. */
struct rs_world_thread *rs_world_thread(uint32_t i) RS_HIDDEN;
/* Keeps the frame of a stopped thread as the state to go back to. -E2BIG: it does not fit. */
long rs_world_keep(struct rs_world_thread *t) RS_HIDDEN;
/* The thread will go back to the kept frame; meanwhile no signal of the program's comes to it, if calls are followed (they wait until it goes on from where the recording ended). */
void rs_world_back(struct rs_world_thread *t) RS_HIDDEN;
/* Keeps the frame of a stopped thread as the one where the recording ended; the thread will go on from there. */
long rs_world_keep_end(struct rs_world_thread *t) RS_HIDDEN;
void rs_world_forward(struct rs_world_thread *t) RS_HIDDEN;
/* A stopped thread gives up t->rseq: what lies there may be unmapped now. */
void rs_world_shed(struct rs_world_thread *t) RS_HIDDEN;
/* Before memory goes back: the thread will go on as when it was born, with these registers, when rs_world_born lets it; until then it counts as stopped. */
void rs_world_unborn(struct rs_world_thread *t, const greg_t *gregs, uint32_t mxcsr, uint16_t control) RS_HIDDEN;
/* On a thread of the program. */
void rs_world_born(uint32_t tid) RS_HIDDEN;
struct rs_world_thread *rs_world_of(uint32_t tid) RS_HIDDEN;
/* As /proc says. */
bool rs_world_ended(uint32_t tid) RS_HIDDEN;
/* At a glance: of the first thread, whom the kernel knows as long as others live, as of the last stop. */
bool rs_world_lives(uint32_t tid) RS_HIDDEN;
/* The frame from which a stopped thread will go on. */
ucontext_t *rs_world_frame_of(struct rs_world_thread *t) RS_HIDDEN;
/* By the task that will call the above, once. task: /proc/self/task. */
long rs_world_begin(int task) RS_HIDDEN;
/* How long the last stop took, in ns: from the first signal to the last thread's arrival. */
uint64_t rs_world_stop_ns(void) RS_HIDDEN;
/* The last stop saw tasks of the kernel's own (io_uring's), which no stop can hold: they write to the program's memory when they like. */
bool rs_world_workers(void) RS_HIDDEN;
#endif
