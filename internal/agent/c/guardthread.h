/* guardthread.h: births, ends and joins of threads in an epoch of `guard`. guardthread.c; docs/decisions.md, 46. */
#ifndef RS_GUARDTHREAD_H
#define RS_GUARDTHREAD_H
#include "calls.h"
#include "guardlog.h"
#include "guardsync.h"

/* --- around the wrappers (thread.c, join.c); nothing where epochs are off --------------------------------------------------------- */

/* sp, here and below: the program's stack pointer at the call. */

/* Around the real function. True: it is followed. False: the epoch is lost (rs_guard_out). */
bool rs_guard_create_begin(uintptr_t sp) RS_HIDDEN;
void rs_guard_create_end(bool followed) RS_HIDDEN;
/* The kernel had no room for the thread: true: there are some that would have ended natively, and now have. */
bool rs_guard_create_retry(uintptr_t sp) RS_HIDDEN;
/* Around what takes, gives back or waits for the memory of threads that have ended: in the order of the recording. */
void rs_guard_threads_lock(uintptr_t sp) RS_HIDDEN;
void rs_guard_threads_unlock(void) RS_HIDDEN;
/* Before libc's pthread_exit: what that loads for itself is loaded under the lock. */
void rs_guard_unwinds(uintptr_t sp) RS_HIDDEN;
/* What functions of ours may have written below the caller's stack pointer, at most what there is, is 0 again but for the bytes right below it, so many, in which the function itself ran. */
size_t rs_guard_forgets(void) RS_HIDDEN;
/* At the end of a wrapper that called such functions: later functions find in their variables what was there, and that is not the same in a recording and in its re-execution. */
#define RS_GUARD_FORGET() do { if (RS_UNLIKELY(rs_guard_on)) { \
	unsigned long n_ = rs_guard_forgets() / 8; void *at_; \
	__asm__ volatile("leaq (,%1,8), %0\n\tsubq %%rsp, %0\n\tnegq %0\n\tcld\n\trep stosq" : "=&D"(at_), "+c"(n_) : "a"(0) : "memory", "cc"); RS_NO_REGISTERS(); } } while (0)
/* Waits until the thread has ended: 0, EBUSY, ETIMEDOUT; RS_GUARD_PASS: it is not followed. The real function then does not wait. */
int rs_guard_join(pthread_t handle, int op, int clock, const struct timespec *abstime, uintptr_t sp) RS_HIDDEN;

/* --- the hook (guardsys.c); general registers only --------------------------------------------------------------------------------- */

/* clone3 with a thread, exit. What rs_call_before returns; -1: look again. Does not return where a thread is kept from ending. t may be NULL. */
enum { RS_GUARD_MAKE_PASS = 2 /* the trampoline makes it */, RS_GUARD_MAKE_BIRTH, RS_GUARD_MAKE_YIELD /* rs_guard_yields does it */ };
long rs_guard_thread_clone(struct rs_guard_log *t, struct rs_call *c, unsigned mode) RS_HIDDEN;
long rs_guard_thread_exit(struct rs_guard_log *t, unsigned mode) RS_HIDDEN;
/* RECORD: it is born. REPLAY: it is to be. */
void rs_guard_thread_made(const struct rs_call *c) RS_HIDDEN;
void rs_guard_thread_again(struct rs_guard_log *t, const struct rs_call *c, long result) RS_HIDDEN;

/* REPLAY: another thread's descriptor lies in there, and it has not ended. */
bool rs_guard_thread_lives(const struct rs_guard_log *own, uint64_t lo, uint64_t bytes) RS_HIDDEN;

/* --- the coordinator, the world stopped ---------------------------------------------------------------------------------------------- */

long rs_guard_threads_begin(uintptr_t rseq_offset, uintptr_t rseq_size) RS_HIDDEN;
/* Those who are kept from ending end. */
void rs_guard_threads_end(void) RS_HIDDEN;
/* An epoch begins: nobody was born in it. */
void rs_guard_threads_new(void) RS_HIDDEN;
/* The thread was born in the epoch, and its birth is in the log. */
bool rs_guard_threads_is_born(uint32_t tid) RS_HIDDEN;
/* Before memory goes back: the thread was born in the epoch, and will be again. False: nothing is known of its birth. */
bool rs_guard_threads_unborn(uint32_t tid) RS_HIDDEN;
/* Before memory goes forward. */
void rs_guard_threads_forward(void) RS_HIDDEN;
/* The i-th birth's tid and what the kernel writes of it by itself; false: there are no more. */
bool rs_guard_threads_birth(uint32_t i, uint32_t *tid, uint64_t *rseq) RS_HIDDEN;
/* Before memory goes back or forward: the thread that had its rseq area here has none now, and what lies there is like all other memory. */
bool rs_guard_threads_gave_up(uint64_t rseq) RS_HIDDEN;
/* After rs_world_back or _forward. */
void rs_guard_threads_restore(void) RS_HIDDEN;
#endif
