/* guardsync.h: what the wrappers of synchronisation objects call while `guard` keeps a log (rs_guard_on). guardsync.c. */
#ifndef RS_GUARDSYNC_H
#define RS_GUARDSYNC_H
#include "agent.h"

extern uint32_t rs_guard_on __attribute__((visibility("hidden")));
/* 1: what the quick paths of mutexes rely on holds. Set by rs_sync_prepare. */
extern uint32_t rs_quick __attribute__((visibility("hidden")));
/* Likewise, of others; 0: no log is kept. */
extern uint32_t rs_rwlock_quick __attribute__((visibility("hidden"))), rs_sem_quick __attribute__((visibility("hidden")));

/* Room of the calling thread's, for what is below its stack pointer while a function of ours runs; NULL: none yet. Not compared, and goes back with the threads. */
#define RS_GUARD_BELOW_BYTES 1152
#define RS_GUARD_BELOW_ROOM 1536 /* system calls' (syshook.c) */
#define RS_STRING_(x) #x
#define RS_STRING(x) RS_STRING_(x)
enum { RS_GUARD_BELOW = RS_GUARD_BELOW_BYTES };
extern __thread char *rs_guard_below __attribute__((tls_model("initial-exec"), visibility("hidden")));
/* The program's alternate stack of the calling thread (guardstack.c); size 0: it has none. */
struct rs_guard_alt { uint64_t lo, size; };
extern __thread struct rs_guard_alt rs_guard_alt __attribute__((tls_model("initial-exec"), visibility("hidden")));
static inline bool rs_guard_alt_has(uintptr_t p) { return p - rs_guard_alt.lo < rs_guard_alt.size; }
/* to: n bytes below the stack pointer, but not below the alternate stack that the thread is on, or has just left by its end: what is there is not its stack. rcx: how many words. a and b are changed, and the flags. p: % or %%. */
#define RS_BELOW_(p, n, to, a, b) "leaq -" n "(" p "rsp), " to "\n\tmovq rs_guard_alt@gottpoff(" p "rip), " a "\n\tmovq " p "rsp, " b "\n\tsubq " p "fs:(" a "), " b "\n\tcmpq " p "fs:8(" a "), " b "\n\tjae 76f\n\t" \
	"cmpq $" n ", " b "\n\tjae 77f\n\tmovq " p "fs:(" a "), " to "\n\tjmp 77f\n76:\taddq $4096, " b "\n\tjnc 77f\n\tmovq " p "rsp, " to "\n77:\tmovq " p "rsp, " p "rcx\n\tsubq " to ", " p "rcx\n\tshrq $3, " p "rcx\n\t"

/* In a hook, around the call of its slow way: what functions leave below is put back. Where it was kept lies on the stack in between. Labels: 3, 4, and 6, to where the hook goes on behind its quick way: the address that a call there leaves. */
#define RS_HOOK_KEEPS_BELOW "	movq rs_guard_below@gottpoff(%rip), %rax\n	movq %fs:(%rax), %rax\n	pushq %rax\n.cfi_adjust_cfa_offset 8\n	testq %rax, %rax\n	jz 3f\n	movq %rax, %rdi\n	" \
	RS_BELOW_("%", RS_STRING(RS_GUARD_BELOW_BYTES), "%rsi", "%r10", "%r11") "	rep movsq\n3:\n"
#define RS_HOOK_PUTS_BELOW "	movq (%rsp), %rsi\n	testq %rsi, %rsi\n	jz 4f\n	" RS_BELOW_("%", RS_STRING(RS_GUARD_BELOW_BYTES), "%rdi", "%r10", "%r11") \
	"	rep movsq\n4:	leaq 8(%rsp), %rsp\n.cfi_adjust_cfa_offset -8\n	leaq 6b(%rip), %rsi\n	movq %rsi, -8(%rsp)\n"

/* What functions of ours leave in registers that nobody's caller relies on, a function of the program's may write to its stack all the same: one with a variable number of arguments stores all six that could have some. The quick ways and the others leave
 * nothing, whatever they did. Right before the return. */
#define RS_NO_REGISTERS_(p) "xorl " p "ecx, " p "ecx\n\txorl " p "edx, " p "edx\n\txorl " p "esi, " p "esi\n\txorl " p "edi, " p "edi\n\txorl " p "r8d, " p "r8d\n\txorl " p "r9d, " p "r9d\n\t"
#define RS_NO_REGISTERS() __asm__ volatile(RS_NO_REGISTERS_("%%") : : : "rcx", "rdx", "rsi", "rdi", "r8", "r9", "cc")

/* A free mutex of the usual kinds is taken, in a recording; one is given back. False, RS_GUARD_NOT_GIVEN: nothing was done, the others below are to. RS_GUARD_GIVEN_WAKE: rs_guard_mutex_wake is to be called; _ALL: that one, as glibc has waiters, too: those of before us. They leave the same
 * below the stack pointer, whatever they do: no frame but what is pushed at their beginning. */
enum { RS_GUARD_NOT_GIVEN, RS_GUARD_GIVEN, RS_GUARD_GIVEN_WAKE, RS_GUARD_GIVEN_WAKE_ALL };
bool rs_guard_mutex_quick(pthread_mutex_t *m) __attribute__((visibility("hidden")));
int rs_guard_mutex_quick_unlock(pthread_mutex_t *m) __attribute__((visibility("hidden")));
/* 0. */
int rs_guard_mutex_wake(pthread_mutex_t *m) __attribute__((visibility("hidden")));
int rs_guard_mutex_wake_all(pthread_mutex_t *m) __attribute__((visibility("hidden")));
/* Before the first epoch of a session, on its first thread. _bind: guardbind.c. */
void rs_guard_bind(void) __attribute__((visibility("hidden")));
void rs_guard_sync_begin(void) __attribute__((visibility("hidden")));
/* Behind the log's beginning: what this thread has taken until now (its allocator's mutexes) it may have taken quickly, which is nowhere in the log, and nobody who gives it back now looks at the list of what is held. */
void rs_guard_sync_begun(void) __attribute__((visibility("hidden")));

/* As the function of that name, with its result (errno set where it sets it), or RS_GUARD_PASS: this object or thread is not followed, do as without us (the epoch is then lost, if that is to matter).
 * sp: the program's stack pointer at the call. clock < 0: the call's own. */
enum { RS_GUARD_PASS = -2 };
enum { RS_GUARD_LOCK, RS_GUARD_TRY, RS_GUARD_TIMED };
int rs_guard_mutex_lock(pthread_mutex_t *m, int op, int clock, const struct timespec *abstime, uintptr_t sp) __attribute__((visibility("hidden")));
int rs_guard_mutex_unlock(pthread_mutex_t *m) __attribute__((visibility("hidden")));
int rs_guard_spin_lock(pthread_spinlock_t *l, bool try, uintptr_t sp) __attribute__((visibility("hidden")));
int rs_guard_rwlock_lock(pthread_rwlock_t *rw, bool write, int op, int clock, const struct timespec *abstime, uintptr_t sp) __attribute__((visibility("hidden")));
int rs_guard_rwlock_unlock(pthread_rwlock_t *rw) __attribute__((visibility("hidden")));
int rs_guard_rwlock_wake(pthread_rwlock_t *rw) __attribute__((visibility("hidden")));
int rs_guard_cond_wait(pthread_cond_t *c, pthread_mutex_t *m, int clock, const struct timespec *abstime, uintptr_t sp) __attribute__((visibility("hidden")));
int rs_guard_cond_signal(pthread_cond_t *c, bool all, uintptr_t sp) __attribute__((visibility("hidden")));
int rs_guard_barrier_wait(pthread_barrier_t *b, uintptr_t sp) __attribute__((visibility("hidden")));
/* Before a barrier is destroyed: waits until all have left it. */
void rs_guard_barrier_settle(pthread_barrier_t *b, uintptr_t sp) __attribute__((visibility("hidden")));
int rs_guard_sem_wait(sem_t *sem, int op, int clock, const struct timespec *abstime, uintptr_t sp) __attribute__((visibility("hidden")));
int rs_guard_sem_post(sem_t *sem, uintptr_t sp) __attribute__((visibility("hidden")));
int rs_guard_sem_wake(sem_t *sem) __attribute__((visibility("hidden")));
int rs_guard_sem_wake_all(sem_t *sem) __attribute__((visibility("hidden")));
int rs_guard_sem_value(sem_t *sem, int *value, uintptr_t sp) __attribute__((visibility("hidden")));
/* What is made once (a pthread_once_t; a guard of C++): waits until it is made, or nobody makes it. RS_GUARD_MADE; RS_GUARD_TO_MAKE: the caller is to call the library's function, which does not wait; _began when the object says
 * itself that it is being made, or the caller came to nothing; RS_GUARD_PASS: also where the thread itself makes it already. _over behind the library's end of it. */
enum { RS_GUARD_MADE, RS_GUARD_TO_MAKE };
enum { RS_GUARD_OF_ONCE, RS_GUARD_OF_STATIC };
int rs_guard_make(uintptr_t object, int of, uintptr_t sp) __attribute__((visibility("hidden")));
void rs_guard_make_began(uintptr_t object) __attribute__((visibility("hidden")));
void rs_guard_make_over(uintptr_t object) __attribute__((visibility("hidden")));
/* A re-execution: what is made already may be what the recording ended before. */
bool rs_guard_follows(void) __attribute__((visibility("hidden")));
/* A lock of guard's own, in the program's memory. False: nobody gave it back for so long; or others had it all the time, for `most`. */
struct rs_guard_log;
struct rs_guard_order { uint32_t word, hands /* how often it was given back */; };
bool rs_guard_order_lock(struct rs_guard_log *t, struct rs_guard_order *lock, uint32_t seconds, uint32_t most) __attribute__((visibility("hidden")));
void rs_guard_order_unlock(struct rs_guard_order *lock) __attribute__((visibility("hidden")));
/* The agent's own heap tells of its locks. */
void rs_guard_heap_begin(void) __attribute__((visibility("hidden")));
#endif
