/* guard.h: what the files of `ripstop guard` in the agent share: world.c stops all threads and lets them go, checkpoint.c keeps what memory was and puts it back,
 * guardfile.c the offsets of descriptors and the actions of signals, guardcall.c what becomes of a system call that a stop interrupted, guard.c the coordinator. See docs/decisions.md, 37.
 *
 * In a nutshell. A *coordinator* is a task of the process that runs nothing of the program's: raw clone, all signals blocked, a table of descriptors of its own, no TLS. It waits for a request, has
 * all other threads stop in a signal handler on stacks of ours, and does what was asked while nobody else runs. A thread's state is the frame that the kernel made for the signal: a rollback gives
 * the thread a copy of the frame that it had at the checkpoint to return from.
 *
 * Ground rules:
 *  1. What must survive a rollback lies in the *arena* (rs_guard_map). All other private memory of the process is the program's, the agent's tables included: they say what the program did, and what
 *     it did is undone. What somebody outside has seen of the agent (rings) is shared memory, which no rollback touches.
 *     The agent's variables go back too: a pointer to the arena is set before the first checkpoint, and never changed.
 *  2. Nothing here is called on a thread of the program with the arena's lock held: there is none. Only the coordinator maps and writes tables; a stopped thread writes to its own entry.
 *  3. The OS only through os.h. No TLS at all: the coordinator's fs is another thread's.
 *
 * Glossary: stop = all threads in the handler; entry = the place of a thread in the world; checkpoint = memory and frames as they were in a stop; epoch = what runs from one checkpoint to the next. */
#ifndef RS_GUARD_H
#define RS_GUARD_H
#include "core.h"
#include <sys/socket.h>
#include <sys/uio.h>
#include <ucontext.h>

/* --- the arena ------------------------------------------------------------------------------------------------------- */

/* Its parts, each in a place of its own, so that what the kernel says of memory by address (smaps) says how much each kind takes, and nobody counts: the guard's own state and stacks; what an epoch writes down, which is what the
 * goal for memory leaves out; memory and threads as they were at the checkpoint, and at the end of an epoch that is executed again. */
enum rs_arena { RS_ARENA_OWN, RS_ARENA_LOG, RS_ARENA_KEPT, RS_ARENAS };
/* Reserves address space, once, before the first checkpoint; a forked child has its parent's, empty. Negative errno. */
long rs_guard_reserve(void) RS_HIDDEN;
/* Zeroed memory that survives rollbacks and is never given back; NULL: the reserve is used up, or there is no memory. Page-aligned. Coordinator, or before it runs. */
void *rs_guard_map(enum rs_arena part, size_t bytes) RS_HIDDEN;
/* Between two epochs, the world stopped: of what grows while an epoch lasts, from `at` on, the one that is over used so many bytes. What none of the last ones needed is given back to the kernel; returns for how much there still is memory (in steps as
 * rs_arena_next makes). there: for how much there was, for whoever makes it be there ahead; at least what was used. */
struct rs_arena_use { uint64_t there, most; uint32_t epochs; };
uint64_t rs_arena_rest(struct rs_arena_use *u, const void *at, uint64_t bytes) RS_HIDDEN;
/* The next size of what has n bytes: twice as many, up to some. A fault for each page costs as much as all that is written to it. */
static inline uint64_t rs_arena_next(uint64_t n) { return n == 0 ? RS_PAGE : n < 64 * RS_PAGE ? 2 * n : n + 64 * RS_PAGE; }
/* A piece of the arena in which something else was mapped, or nothing is: reserved again. Negative errno. */
long rs_guard_reserve_again(uintptr_t lo, size_t bytes) RS_HIDDEN;
/* The process has a limit on its memory (ulimit -v, -d): what we take is not the program's any more, whose own memory may be all that the limit is made for. So a session's arena does not grow then. */
bool rs_guard_limited(void) RS_HIDDEN;
/* The arena: nothing in it belongs to the program. */
uintptr_t rs_guard_lo(void) RS_HIDDEN;
uintptr_t rs_guard_hi(void) RS_HIDDEN;

/* --- small readers of /proc, for the coordinator's own table of descriptors ---------------------------------------------- */

/* Opens /proc/self/NAME (or NAME below dir), read only (or as flags say). Negative errno. */
long rs_guard_open(int dir, const char *name, int flags) RS_HIDDEN;
/* The file's first `room` - 1 bytes, with a NUL behind them; their number, or a negative errno. */
long rs_guard_read(int dir, const char *name, char *to, size_t room) RS_HIDDEN;
/* Writes n as digits, with a NUL; returns where that is. */
char *rs_guard_digits(char *to, uint64_t n) RS_HIDDEN;
/* Calls f for each name in the directory that is a number. f's first answer that is not 0 ends it and is returned. */
long rs_guard_numbers(int dir, long (*f)(void *arg, uint32_t number), void *arg) RS_HIDDEN;

/* --- guardcall.c ------------------------------------------------------------------------------------------------------- */

/* The system call in which a thread was when its stop began. */
struct rs_guard_call {
	bool in;                   /* the thread was in it, at pc (behind the instruction) and sp */
	uint64_t number, arg[6], sp, pc;
	uint64_t since;            /* ns of CLOCK_MONOTONIC: from when its relative timeout counts: when the call began, if the hook made it; else when we first saw it there */
	uint64_t timeout;          /* ns from since; UINT64_MAX: none, or not a relative one */
	struct timespec left;      /* what its argument points to when it is made again, elsewhere than by the hook */
};
/* What the kernel reads where such a call goes on with the rest of its pieces. Nobody's memory but the thread's. */
struct rs_guard_rest { struct msghdr msg; struct iovec piece[128]; };
/* Reads what /proc says of the task, before it is interrupted. was: of its last stop. */
void rs_guard_call_look(int task, uint32_t tid, struct rs_guard_call *c) RS_HIDDEN;
/* A thread is about to return from the handler to uc. Where the signal of the stop interrupted a call, the call is made again, unless one of the program's own signals would have interrupted it
 * natively: then it returns EINTR. c->left is written. */
void rs_guard_call_again(struct rs_guard_call *c, ucontext_t *uc) RS_HIDDEN;
struct rs_guard_log;
struct rs_call;
/* Before a call that waits, and behind it (or where it is left, to be made anew): what is left of its wait is written to the program's memory only where natively it would be. */
void rs_guard_call_lend(const struct rs_guard_log *t, struct rs_call *c) RS_HIDDEN;
void rs_guard_call_take_back(struct rs_call *c) RS_HIDDEN;
/* Coordinator, world stopped at a recording's end: the thread with these registers is in poll, or about to be: what it polls. _unpoll, there and at the re-execution's end: nothing has come of it yet. */
struct rs_guard_polled { uint64_t at, n; };
void rs_guard_call_polls(const greg_t *g, struct rs_guard_polled *p) RS_HIDDEN;
void rs_guard_call_unpoll(const struct rs_guard_polled *p) RS_HIDDEN;
/* Before the first of the session; and right before each that the hook makes: those that have a timeout note when that was. */
void rs_guard_calls_begin(void) RS_HIDDEN;
void rs_guard_call_begins(struct rs_call *c) RS_HIDDEN;
/* The kernel makes it for a process of one task alone, or for one that shares its root and directory with nobody: not beside the coordinator. */
bool rs_guard_call_wants_alone(const struct rs_call *c) RS_HIDDEN;
/* On the thread, in a handler of ours that is no stop: as if its signal had not come. */
void rs_guard_call_unbroken(struct rs_guard_rest *rest, ucontext_t *uc) RS_HIDDEN;
/* A thread has come to its stop in uc: a call that returned how many bytes it had moved is about to be made, in uc, for the rest. */
void rs_guard_call_goes_on(struct rs_guard_rest *rest, ucontext_t *uc) RS_HIDDEN;
/* Stopped so. */
bool rs_guard_call_moved(const greg_t *g) RS_HIDDEN;
/* One of the program's own signals has come in uc. A call that has gone on behind a stop, and that it interrupts, returns what was moved. */
void rs_guard_call_cut(ucontext_t *uc) RS_HIDDEN;

/* --- guardfile.c --------------------------------------------------------------------------------------------------------- */

/* A descriptor of the coordinator's for one of the thread's. Negative errno. */
long rs_guard_files_borrow(uint32_t tid, uint32_t fd) RS_HIDDEN;
/* Offsets of the program's open regular files, actions of all signals. task: /proc/self/task. Negative errno. */
long rs_guard_files_begin(void) RS_HIDDEN;
long rs_guard_files_keep(int task, uint32_t tid) RS_HIDDEN;
long rs_guard_files_back(uint32_t tid) RS_HIDDEN;
/* Last words, on the program's stderr. Takes descriptor 2 of the coordinator's own: nothing else can be done afterwards. */
void rs_guard_say(uint32_t tid, const char *what, long error) RS_HIDDEN;
#endif
