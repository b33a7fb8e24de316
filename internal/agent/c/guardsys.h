/* guardsys.h: the program's system calls in an epoch of `guard`: guardsys.c; the classes are internal/guard's. See guard.h, calls.h. */
#ifndef RS_GUARDSYS_H
#define RS_GUARDSYS_H
#include "calls.h"
#include "guardlog.h"

/* In a forked child that is not recorded, behind _forget: the hook sees calls that processes make that live. */
void rs_guard_sys_young(void) RS_HIDDEN;
/* Before the first checkpoint, on a thread of the program: from here on the hook sees all calls. -ENOMEM. */
long rs_guard_sys_begin(void) RS_HIDDEN;
/* System calls are classed as they were before. */
void rs_guard_sys_forget(void) RS_HIDDEN;
/* Coordinator, by rs_guard_log_new: another epoch begins. */
void rs_guard_sys_epoch(void) RS_HIDDEN;
/* For guardfile.c: the recording's offsets stay, as reads are made again at theirs. */
bool rs_guard_sys_follows(void) RS_HIDDEN;

/* c->guard_state: NOTED: begun in RECORD, rs_guard_sys_after writes it down. AGAIN: made again, the result is compared. BETWEEN: it is in no epoch. WAIT: of a futex; nothing is written down. BIRTH: it made a thread. INTERRUPTED: by a signal whose handler is to run before EINTR is returned. */
enum { RS_GUARD_CALL_UNSEEN, RS_GUARD_CALL_NOTED, RS_GUARD_CALL_AGAIN, RS_GUARD_CALL_BETWEEN, RS_GUARD_CALL_WAIT, RS_GUARD_CALL_BIRTH, RS_GUARD_CALL_INTERRUPTED };

/* Around rs_call_before and _after (calls.c), general registers only. before: 0: the call is not made, and c->result is what is returned. */
long rs_guard_sys_before(struct rs_call *c) RS_HIDDEN;
void rs_guard_sys_after(struct rs_call *c) RS_HIDDEN;
/* What is most of servers' calls, in a recording where nothing is unusual: true: it is to be made; it is noted. False: nothing was done, the others are to. */
bool rs_guard_sys_quick(struct rs_call *c) RS_HIDDEN;
bool rs_guard_sys_quick_over(struct rs_call *c) RS_HIDDEN;
/* In place of it: true: a handler is to run, and the call is to be looked at again from its beginning. */
bool rs_guard_sys_again(struct rs_call *c) RS_HIDDEN;
/* A call that was begun in the epoch before, and was waiting at the checkpoint: in a re-execution it is not made again. g: the registers of a thread that is put back; if it stands at the hook's
 * syscall instruction, it goes on behind it, as if it had been made; rs_guard_sys_after gives it the recording's result. (syshook.c) */
bool rs_hook_skip(greg_t *g) RS_HIDDEN;
/* The hook's syscall instruction, or behind it, is where this is. */
bool rs_hook_at_call(uintptr_t pc) RS_HIDDEN;
/* At the hook's first instruction: where its caller goes on behind the system call. 0: it is elsewhere. */
uint64_t rs_hook_next(const greg_t *g) RS_HIDDEN;
/* The hook's last instruction, a jump to there, with the caller's stack pointer. */
uint64_t rs_hook_exit(void) RS_HIDDEN;

/* From rs_vdso_hook: function is the vdso's, row its count's. Of a clock in a recording: nothing below RS_VDSO_BELOW bytes under the stack pointer with which the vdso was called is touched. All else is rs_guard_vdso_kept's, by way of
 * rs_guard_vdso_slowly (syshook.c), which puts back what was below that; sp: the program's stack pointer. */
#define RS_VDSO_BELOW 256
long rs_guard_vdso(long a, long b, long c, long d, long e, long f, uint64_t offset, void *function) RS_HIDDEN;
long rs_guard_vdso_slowly(long a, long b, long c, long d, long e, long f, uint64_t offset, void *function) RS_HIDDEN;
long rs_guard_vdso_kept(long a, long b, long c, long d, long e, long f, uint64_t offset, void *function, uintptr_t sp) RS_HIDDEN;
/* Before the first epoch. Negative errno. */
long rs_guard_vdso_begin(void) RS_HIDDEN;
/* The vdso's function of two arguments, and how many bytes of the stack it used; 512: that or more. */
long rs_vdso_measure(long a, long b, void *function, uint64_t *bytes) RS_HIDDEN;

/* For guardvdso.c, by a call that no trampoline makes; sp: the program's stack pointer. _begun: 0: it is not to be made, and c->result is what is returned, behind _signals; else _ended is called when it was. */
long rs_guard_sys_begun(struct rs_call *c, uintptr_t sp) RS_HIDDEN;
void rs_guard_sys_ended(struct rs_call *c, uintptr_t sp) RS_HIDDEN;
void rs_guard_sys_signals(const struct rs_call *c, uintptr_t sp) RS_HIDDEN;
void rs_guard_sys_replayed(void) RS_HIDDEN;

/* Entry point for tests, found as guard.c's are. over: nothing is recorded or followed from here on, and who stood at the end of the re-execution goes on. */
struct rs_guard_sys_verdict { uint64_t why, event, was, is, lost, events, end, class[8], replayed, kept, ended; };
void rs_guard_sys_verdict(struct rs_guard_sys_verdict *v, bool over);
/* A wait for a word of this process's memory alone. */
bool rs_guard_waits_for_ours(const struct rs_call *c) RS_HIDDEN;
#endif
