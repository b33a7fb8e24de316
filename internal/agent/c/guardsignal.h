/* guardsignal.h: the program's signal handlers in an epoch of `guard`, at recorded points. guardsignal.c; docs/decisions.md, 50. */
#ifndef RS_GUARDSIGNAL_H
#define RS_GUARDSIGNAL_H
#include "guardlog.h"

/* Where no call has its number: an event of a handler is written down as one of a call. */
enum { RS_GUARD_SIGNAL_NUMBER = 0x8000 };
/* What a handler runs behind, in place of before: a call's result. */
#define RS_GUARD_BEHIND(number) RS_GUARD_WHAT((uint64_t)(number) | 1ull << 32, RS_GUARD_CALL)

/* Before other threads. -ENOMEM. */
long rs_guard_signals_begin(void) RS_HIDDEN;

/* signal.c, when the kernel has delivered a signal to the stub at `entry`: true: the handler is not to run now. has_info: the kernel has written *info. on_stack: the program asked for SA_ONSTACK. */
bool rs_guard_signal(int sig, const siginfo_t *info, ucontext_t *uc, uintptr_t entry, bool has_info, bool on_stack) RS_HIDDEN;
/* False, where it is to run: on an alternate stack of ours it does not return: handle is called with a frame where the kernel would have made one without that. Returns true where the kernel would have found no room: SIGSEGV comes, and the handler is not to run. */
bool rs_guard_signal_move(int sig, ucontext_t *uc, uint32_t stub, bool on_stack, void (*handle)(int sig, siginfo_t *info, void *context, uint32_t stub)) RS_HIDDEN;
/* signal.c: SA_ONSTACK is to be taken from actions for which the program did not ask for it; or (ours) given to those that are to have it. */
void rs_signal_stacks(bool ours) RS_HIDDEN;
/* signal.c: a stub begins there, or goes on to its handler. */
bool rs_signal_at_stub(uintptr_t pc) RS_HIDDEN;
/* What runs between a stub and the moment at which all signals are blocked. A checkpoint that finds a thread there would keep a frame of a signal of which the log of the new epoch has nothing: a re-execution would take it for one more. So is what
 * looks at the mode before it does what a re-execution must not do again (rs_reserve). */
#define RS_GUARD_ARRIVES __attribute__((section("rs_arrives")))
/* Coordinator, world stopped: a signal has come to the thread with these registers, and nobody has noted it. */
bool rs_guard_signal_arrives(const greg_t *g) RS_HIDDEN;
/* What a handler that runs where the kernel began it finds half done: an act, a call, a wait of ours. Its own acts leave none of that in the log, and an epoch that begins meanwhile is lost: who goes back to its beginning would do the rest of the act, of which
 * the log of that epoch has nothing. */
struct rs_guard_half {
	uint64_t sp, pending, vdso_sp;
	uint32_t *wait;
	uint32_t inner, state, vdso_number;
	bool is, outermost;
	uint64_t changes; /* a word, half changed: the handler's changes are others */
	uint32_t changes_info, changes_found;
};
/* signal.c, before the handler; and when it has returned. */
void rs_guard_signal_begins(struct rs_guard_half *h, ucontext_t *uc) RS_HIDDEN;
void rs_guard_signal_over(ucontext_t *uc, const struct rs_guard_half *h) RS_HIDDEN;
/* Coordinator, world stopped, before an epoch: there is such a thread. Whose handler has left by a jump is not. */
bool rs_guard_signals_half(void) RS_HIDDEN;

/* On the thread, outside of acts, t->sp set: it stands before the event `what` (or behind a call). RECORD: runs a handler that waits for that; REPLAY: that is the thread's next event. True: look at everything again. */
bool rs_guard_signals(struct rs_guard_log *t, uint64_t what) RS_HIDDEN;
/* There a thread goes on whose handler was run by an event: the frame that was made has this pc. */
extern const char rs_guard_handler_ran[] RS_HIDDEN;
/* REPLAY: a handler's is the thread's next event. */
bool rs_guard_signal_next(const struct rs_guard_log *t) RS_HIDDEN;

/* The order of signals sent, handled and waited for: an object as of rs_guard_ticket. */
#define RS_GUARD_SIGNALS_ORDER 62 /* kill */

/* Coordinator: handlers do not wait for longer than this. Sends what ends that; when it is to be called again, in ns of CLOCK_MONOTONIC (0: when somebody asks). */
uint64_t rs_guard_signals_late(uint64_t now) RS_HIDDEN;
/* world.c: on the thread, in the handler of our signal with this value. True: a signal still waits, for which the thread comes out of its call. */
enum { RS_GUARD_SIGNAL_LATE = -1 };
bool rs_guard_signals_at_once(uint32_t tid, ucontext_t *uc) RS_HIDDEN;
#endif
