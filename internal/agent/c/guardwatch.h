/* guardwatch.h: who writes to given bytes in a re-execution: hardware breakpoints on all threads, by perf. guardwatch.c; see guardlog.h, and docs/decisions.md, 37.
 *
 * In a nutshell. Bytes to be watched are asked for before a re-execution. The coordinator cuts them into *units* of 1, 2, 4 or 8 aligned bytes, as the hardware wants them, and opens breakpoints of as many as there are registers (four) on each
 * thread before the threads go on; what is left is watched in further re-executions of the same epoch (*rounds*). A write is told by a synchronous SIGTRAP (trap.c), behind the instruction. What the kernel wrote for the recording is copied by
 * guardsysfollow.c and guardsys.c, which say so by rs_guard_watch_put and _wrote: no breakpoint sees the kernel.
 *
 * Where breakpoints are never hit the pages of the units are made read-only instead, and each store to one is a fault (guardpage.h): all units at once.
 *
 * A re-execution leaves no trace of the watch in the program's memory: hits lie in the arena, and SIGTRAP is taken on a stack there. */
#ifndef RS_GUARDWATCH_H
#define RS_GUARDWATCH_H
#include "calls.h"
#include "guard.h"
#include "guardstep.h"
#include <signal.h>

enum { RS_GUARD_UNITS = 64, RS_GUARD_HITS = 8, RS_GUARD_HIT_FRAMES = 16 };

struct rs_guard_watch { uint64_t address, bytes; };

struct rs_guard_hit {
	uint64_t address, pc;      /* of the unit; behind the writing instruction, as the processor says it (which one that was: x86.Trap) */
	uint64_t before, after;    /* the unit's bytes; before: what the last hit left, or what was there at the checkpoint */
	uint32_t tid, unit;
	uint32_t order;            /* among all hits of the round, from 1 on; 0: the entry is empty */
	int32_t call;              /* a system call's number: the kernel wrote; -1: an instruction did */
	uint64_t event;            /* how many events the thread had behind it */
	uint32_t thread;           /* its number in events; 0: it has none */
	uint32_t frames, late;     /* late: SIGTRAP was blocked at the instruction; pc is where it was opened */
	uint64_t frame[RS_GUARD_HIT_FRAMES]; /* the first is pc, where the program would see it; the others as rs_walk gives them. Without a session's tables there is but one */
	uint64_t gregs[17];        /* of an instruction, behind it: as in a ucontext, up to RIP */
	uint32_t words;            /* if rs_guard_watch_told is set: rs_guard_step_words */
	struct rs_guard_step_word word[RS_GUARD_STEP_WORDS];
};

/* What came of one unit. */
struct rs_guard_unit {
	uint64_t address;
	uint32_t bytes, watch;     /* watch: the index of what was asked for */
	uint32_t state;            /* RS_GUARD_UNIT_… */
	uint32_t round;            /* from 1 on */
	uint64_t count;            /* hits, of which the last RS_GUARD_HITS are kept: the k-th at hit[k % RS_GUARD_HITS] */
	uint64_t lost;             /* hits that the kernel counted and nobody told; of pages: values that nobody was seen to write */
	uint64_t last;             /* its bytes */
	uint64_t quiet;            /* hits of the agent's own copies */
	struct rs_guard_hit hit[RS_GUARD_HITS];
};
/* WATCHED: in a re-execution that was identical. DIVERGED: in none; its hits are of the last try. REFUSED: see refused. */
enum { RS_GUARD_UNIT_WANTED, RS_GUARD_UNIT_WATCHED, RS_GUARD_UNIT_DIVERGED, RS_GUARD_UNIT_REFUSED };

/* Why there are no breakpoints. */
enum { RS_GUARD_WATCH_DENIED = 1 /* perf_event_paranoid, a security module, seccomp */, RS_GUARD_WATCH_NO_REGISTER /* all are in use: a debugger's */, RS_GUARD_WATCH_NO_DEVICE /* no such thing here */,
	RS_GUARD_WATCH_NO_DESCRIPTOR /* RLIMIT_NOFILE, or the system's */, RS_GUARD_WATCH_OTHER, RS_GUARD_WATCH_HOT /* beside it there was written too often */ };

struct rs_guard_watched {
	uint32_t request;          /* which one it was, from 1 */
	uint32_t units, rounds;    /* rounds: re-executions with breakpoints that were identical */
	uint32_t tries;            /* re-executions with breakpoints */
	uint32_t refused;          /* RS_GUARD_WATCH_…; 0: no */
	int32_t error;             /* the kernel's, negative */
	uint32_t at_once;          /* as many units as were watched at once at most */
	uint32_t pages;            /* 1: by their pages, as no breakpoint is ever hit (guardpage.h) */
	struct rs_guard_unit unit[RS_GUARD_UNITS];
};

/* The next re-execution tells who writes to these bytes. On a thread of the program, or the coordinator; replaces what was asked before. In a re-execution: nothing, and 0. -EINVAL: no bytes; -E2BIG: more than RS_GUARD_UNITS units;
 * -ESRCH: there is no log. That the kernel refuses is known when it is over: rs_guard_watched. */
long rs_guard_watch(const struct rs_guard_watch *w, unsigned n) RS_HIDDEN;
/* The same, for the coordinator, between two re-executions of an epoch. */
long rs_guard_watch_next(const struct rs_guard_watch *w, unsigned n) RS_HIDDEN;
/* Called, if set, by the coordinator when all that was asked for has been watched, before it is over: true: it has asked for more (steps). */
extern bool (*rs_guard_watch_told)(const struct rs_guard_watched *of) RS_HIDDEN;
/* What came of the last one that was asked for and is over; in the arena. NULL: none was. It stays the same through the next one: who is executed again reads what it read. */
const struct rs_guard_watched *rs_guard_watched(void) RS_HIDDEN;
/* Is that of the one that was asked for last? Not so if the epoch came to its end otherwise. */
bool rs_guard_watch_answered(void) RS_HIDDEN;

/* Why the last excursion that was to have breakpoints had none, or not for all that it was asked for: a negative errno; 0: it had. */
int32_t rs_guard_watch_refusal(void) RS_HIDDEN;

/* --- for the coordinator --------------------------------------------------------------------------------------------------------------- */

/* Before the first checkpoint. -ENOMEM. */
long rs_guard_watch_begin(void) RS_HIDDEN;
/* Are breakpoints ever hit? False: the kernel has none, or opens them, and a write goes by unseen (a virtual machine whose host keeps the debug registers to itself): found out once. True also where that cannot be told, as none can be opened now: who opens
 * one is told why. */
bool rs_guard_registers_hit(void) RS_HIDDEN;
/* World stopped, all threads to go back to the checkpoint: opens breakpoints, if any are wanted. */
void rs_guard_watch_arm(void) RS_HIDDEN;
/* What is armed makes threads many times slower than they were. */
bool rs_guard_watch_slows(void) RS_HIDDEN;
/* The re-execution is over, and (stopped) the world is, too: closes them, and the threads' frames have the program's stacks for signals again. They are to go on from copies of their frames (rs_world_back). */
void rs_guard_watch_disarm(bool stopped) RS_HIDDEN;
/* What came of the re-execution that was disarmed last. True: another one is wanted, for what is left, or since this one diverged. */
bool rs_guard_watch_more(bool identical) RS_HIDDEN;
/* No more of this epoch: what came of it is what rs_guard_watched says from here on. */
void rs_guard_watch_over(void) RS_HIDDEN;

/* --- on threads of the program, in a re-execution; general registers only ----------------------------------------------------------------- */

/* Has there been a watch, or a step? */
bool rs_guard_watch_ever(void) RS_HIDDEN;
/* SIGTRAP of perf: true: it is ours. */
bool rs_guard_watch_hit(const siginfo_t *info, ucontext_t *uc) RS_HIDDEN;
/* SIGTRAP of a debug register: likewise. */
bool rs_guard_watch_debug(const siginfo_t *info, ucontext_t *uc) RS_HIDDEN;
/* The call's result is copied to the program's memory, or the kernel wrote it there. */
void rs_guard_watch_put(const struct rs_call *c, void *to, const void *from, size_t n) RS_HIDDEN;
void rs_guard_watch_wrote(const struct rs_call *c, const void *p, size_t n) RS_HIDDEN;
/* sigaltstack, while the thread's is the watch's, where it has no other of ours: as the kernel would have answered. False: it is to be made. */
bool rs_guard_watch_altstack(const struct rs_call *c, long result) RS_HIDDEN;
#endif
