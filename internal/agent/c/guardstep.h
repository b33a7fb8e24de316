/* guardstep.h: the last instructions of a thread before it crashed, from re-executions: single steps. guardstep.c; see guardwatch.h, which calls the coordinator's part.
 *
 * In a nutshell. A crash's thread asks for it, and for a re-execution. Steps cost microseconds each, so they begin late: what the thread did shortly before the crash, its *anchors* (the same instruction's last run before that, the last call that the function made, its own
 * call and those of its callers, as writes of their return addresses), is counted in a first re-execution by breakpoints that only count; in a second one steps begin at the last of each, and go on for so long. If that is not enough, two more with
 * callers further out. Long calls that these functions make are passed by. In functions of the agent there are no steps: they block signals, and a trap that is blocked kills. Where anchors lie is a guess; what is claimed rests on the steps, which are good if they end where it crashed. */
#ifndef RS_GUARDSTEP_H
#define RS_GUARDSTEP_H
#include "decode.h"
#include "guard.h"
#include <signal.h>

enum { RS_GUARD_STEPS = 16384, RS_GUARD_STEP_WORDS = 8 };

/* A word of the stack in which a return address lies. call: the instruction that wrote it, if that is certain (of the innermost, which may be gone, it is a guess); else 0. begin: an instruction near the beginning of what was called, which it comes by; 0: not known. */
struct rs_guard_step_word { uint64_t at, call, begin; };

struct rs_guard_step {
	uint64_t gregs[17]; /* before the instruction; as in a ucontext, up to RIP */
	uint64_t what;      /* RS_GUARD_STEP_… */
};

/* ONE: an instruction. CALL: the rest of a function, the agent's mostly, or a system call: the next step is where it came back. BREAK: what came next is not known. */
enum { RS_GUARD_STEP_ONE, RS_GUARD_STEP_CALL, RS_GUARD_STEP_BREAK };

/* REPLAY: the calling thread stands from here on, and is not stepped any more. */
void rs_guard_step_stands(void) RS_HIDDEN;
/* On the thread that crashed by this signal, with its registers g: the next re-execution is to have its steps; rs_guard_stepped is called then. fault: what it crashed in is a function of ours, in place of libc's, and g is known of the call of it, as far as a walk knows
 * registers; the address that faulted; else NULL. In a re-execution: nothing, and what it answered in the recording. -ESRCH: there is no log; -ENOENT: nothing to begin at is known. */
long rs_guard_step(struct rs_thread *t, int sig, const greg_t *g, const uint64_t *fault) RS_HIDDEN;
/* The steps: number 0 is the instruction that faulted (or that could not be fetched), higher ones were before. NULL: there are no more. If they did not say enough, number 0 is next time what was the first before. */
const struct rs_guard_step *rs_guard_step_back(uint32_t i) RS_HIDDEN;
/* The registers of the crash in the recording. Those that a call need not give back may be others in the last step. */
const uint64_t *rs_guard_step_crash(void) RS_HIDDEN;
int rs_guard_step_signal(void) RS_HIDDEN;
/* Is what is looked into a call of a function of ours, in which it crashed? That function, and the address that faulted. */
bool rs_guard_step_called(uint64_t *function, uint64_t *fault) RS_HIDDEN;
/* Of an abort: where the return address of the function is that aborted. */
uint64_t rs_guard_step_top(void) RS_HIDDEN;
/* Called by the coordinator between two re-executions, when there are steps: memory is as it was at the crash. False: steps from further back would say more. */
extern bool (*rs_guard_stepped)(void) RS_HIDDEN;

/* On the coordinator, between two re-executions: now the steps of this thread to its last write to `place` behind which its registers were these; pc: the instruction's. word: rs_guard_step_words of it. -ENOENT: nothing to begin at is known. */
long rs_guard_step_write(uint32_t tid, uint64_t place, const uint64_t *behind, uint64_t pc, const struct rs_guard_step_word *word, unsigned words) RS_HIDDEN;
/* Where on the stack the return addresses are that a walk found (pcs, the first is no return address); the first is the one of the function's last call. If it found none, whatever could be one. How many, RS_GUARD_STEP_WORDS at most. t may be NULL: then less is certain. */
unsigned rs_guard_step_words(struct rs_thread *t, uint64_t rsp, const uint64_t *pcs, unsigned n, struct rs_guard_step_word *word) RS_HIDDEN;

/* Instructions that compare what jumps go by that lead straight to a call; how many. */
unsigned rs_guard_step_conditions(struct rs_thread *t, uint64_t call, uint64_t *at, unsigned most) RS_HIDDEN;

/* The agent's code. */
extern const char __ehdr_start[] RS_HIDDEN, _end[] RS_HIDDEN;
static inline bool rs_guard_step_ours(uint64_t pc) { return pc - (uintptr_t)__ehdr_start < (uintptr_t)_end - (uintptr_t)__ehdr_start; }
/* Does a call end there? */
bool rs_guard_step_behind_call(uint64_t to) RS_HIDDEN;
static inline bool rs_guard_step_calls(const struct rs_instruction *in) { return in->map == 0 && (in->op == 0xe8 || (in->op == 0xff && (in->reg & 7) == 2)); }
/* Where certainly a call begins that returns there; 0: that is not known. guess: it may be no return address at all. */
uint64_t rs_guard_step_call_before(struct rs_thread *t, uint64_t to, bool guess) RS_HIDDEN;
/* n bytes of the program's memory, without breakpoints of ours. False: not all are there. */
bool rs_guard_step_read(uint64_t at, void *to, size_t n) RS_HIDDEN;

/* --- for guardwatch.c, on the coordinator ------------------------------------------------------------------------------------------------ */

/* Before the first checkpoint. -ENOMEM. */
long rs_guard_step_begin(void) RS_HIDDEN;
bool rs_guard_step_wanted(void) RS_HIDDEN;
/* The next re-execution's breakpoints: the processor's, or where those are refused, or never hit, int3 (guardbreak.h). Negative errno: the kernel's. */
long rs_guard_step_arm(void) RS_HIDDEN;
/* While it runs, now and then. */
void rs_guard_step_poll(void) RS_HIDDEN;
void rs_guard_step_disarm(void) RS_HIDDEN;
/* What came of it. True: another one is wanted for more steps. */
bool rs_guard_step_more(void) RS_HIDDEN;
/* No more of this epoch. */
void rs_guard_step_over(void) RS_HIDDEN;

/* --- on threads of the program, in a re-execution ------------------------------------------------------------------------------------------ */

/* Has this thread been stepped last? */
bool rs_guard_step_is_of(uint32_t tid) RS_HIDDEN;
/* SIGTRAP, of a breakpoint or a step: true: it was ours. */
bool rs_guard_step_trap(const siginfo_t *info, ucontext_t *uc) RS_HIDDEN;
/* Of an int3. */
bool rs_guard_step_int3(ucontext_t *uc) RS_HIDDEN;
#endif
