/* calls.h: the hook of system-call sites (syshook.c) and the counts that it keeps (calls.c). See docs/architecture.md, 'System calls'. */
#ifndef RS_CALLS_H
#define RS_CALLS_H
#include "agent.h"
#include "os.h"
#include <ucontext.h>

/* What the hook does with a system call, by its row: its number, or RS_CALL_OTHER for those that are too high. */
enum {
	RS_CALL_PASS,       /* nothing: the call is made in the trampoline */
	RS_CALL_COUNT,      /* counts and times it */
	RS_CALL_COUNT_PASS, /* counts it, and it is made in the trampoline: it returns on another stack or not at all, or changes where fs is */
	RS_CALL_SEE,        /* rs_call_before and rs_call_after are called; counts and times it as well if rs_calls_on */
};
#define RS_CALL_ROW(v) (RS_CALL_ROWS - 8u + (v))
#define RS_CALL_OTHER RS_CALL_ROW(RS_CALL_ROW_OTHER)
extern uint8_t rs_call_class[RS_CALL_ROWS] __attribute__((visibility("hidden")));

/* The hook's frame, below the caller's red zone. rs_call_before may change arg, which the kernel gets, and the program's registers stay as they
 * were; rs_call_after may change result. */
struct rs_call {
	uint64_t start;            /* TSC */
	uint64_t number;           /* rax */
	uint64_t at;               /* the syscall instruction in the trampoline */
	uint64_t rdx;
	uint16_t flags, pad;       /* as lahf and seto give them */
	uint32_t row;
	int64_t result;
	uint64_t next;             /* behind the site */
	uint64_t r11;              /* as the kernel left it */
	uint64_t see;              /* class SEE: 1, and the program's registers are these: */
	uint64_t rdi, rsi, r10, r8, r9;
	uint64_t arg[6];
	uint64_t ticks;
	union {
		uint64_t spare;    /* sharecall.c, where no epochs are recorded */
		uint64_t begun;    /* guardcall.c: when a call began that has a timeout */
	};
	uint64_t guard_check, guard_offset; /* guardsys.c */
	uint32_t guard_room;
	uint16_t guard_file;
	uint8_t guard_class, guard_state;
	uint64_t guard_again;      /* guardsignal.c: the call was not made, or interrupted, and is to be made again */
	uint64_t moved;            /* guardcall.c: bytes that it had moved when stops interrupted it; it goes on with the rest */
	uint64_t left;             /* guardcall.c: where the program wants to be told what is left of its wait; 0: nowhere, or the kernel writes there */
	struct timespec left_now, lent; /* where the kernel writes it, else; and what was there before */
};
#define RS_CALL_FRAME 384 /* bytes of the hook's frame, with the red zone */
_Static_assert(sizeof(struct rs_call) + 128 == RS_CALL_FRAME, "");

/* after: 1: it was interrupted, before is called again. Both are called on the program's stack, with the program's vector state in the registers: they, and what they call, are compiled for general
 * registers only (RS_GENERAL), and make system calls through os.h alone. before: 0 makes no call, and result is what is returned; 2: the trampoline makes
 * it; 3: it makes a thread, which goes on behind the site with all that its function was not told cleared; 4: rs_guard_yields (guardyield.h) is called, and makes it. */
#define RS_GENERAL __attribute__((target("general-regs-only")))
long rs_call_before(struct rs_call *c) __attribute__((visibility("hidden")));
long rs_call_after(struct rs_call *c) __attribute__((visibility("hidden")));

/* Not C functions. A trampoline jumps to the hook with rcx = the address in it of these ten bytes, all other registers as at the site:
 *	syscall
 *	lea next(%rip), %rcx
 * The hook jumps to the second when the call was made, to the first when it leaves that to the trampoline. */
extern char rs_syscall_hook[] __attribute__((visibility("hidden")));
extern char rs_syscall_hook_end[] __attribute__((visibility("hidden")));
/* Likewise where libc takes its own locks: guardlock.c. */
extern char rs_lock_hook[] __attribute__((visibility("hidden")));
/* Before and behind an instruction that changes a word for which programs wait: guardfutex.c. */
extern char rs_futex_hook[] __attribute__((visibility("hidden")));
extern char rs_futex_over_hook[] __attribute__((visibility("hidden")));
/* In place of rdtsc, and of rdtscp: guardclock.c. */
extern char rs_clock_hook[] __attribute__((visibility("hidden")));
extern char rs_clock_processor_hook[] __attribute__((visibility("hidden")));
/* With r11 = where to go on, r10 = the offset in struct rs_calls of the count that is raised. Changes rax and flags. */
extern char rs_vdso_hook[] __attribute__((visibility("hidden")));

/* A thread was interrupted, g are its registers as the kernel keeps them in a signal's ucontext (REG_RIP …). If it is inside the hook, g becomes what it would be
 * without, at the site or behind it; true. When nobody has changed g since, but for a call's result right behind it, rs_hook_back puts the thread where it was. */
bool rs_hook_view(greg_t *g, greg_t *real, greg_t *shown) __attribute__((visibility("hidden")));
void rs_hook_back(greg_t *g, const greg_t *real, const greg_t *shown) __attribute__((visibility("hidden")));
/* In the hook of system calls, or in rs_vdso_hook. */
bool rs_hook_has(uintptr_t pc) __attribute__((visibility("hidden")));
bool rs_hook_of_vdso(uintptr_t pc) __attribute__((visibility("hidden")));

/* For walks of stacks: if *pc is in the hook and *rsp the stack pointer there, both become the site's. */
bool rs_hook_frame(uintptr_t *pc, uintptr_t *rsp) __attribute__((visibility("hidden")));

/* --- calls.c --- */

extern __thread struct rs_calls *rs_calls_tls __attribute__((tls_model("initial-exec"), visibility("hidden")));
/* rs_calls_on (os.h): counting was asked for. Counts c->row, c->result, c->ticks where the thread has no counts of its own. */
void rs_calls_add(struct rs_call *c) __attribute__((visibility("hidden")));
/* At the start of the process, before there are other threads. */
/* Code is patched: calls about signals are looked at. */
void rs_calls_patching(void) __attribute__((visibility("hidden")));
void rs_calls_begin(void) __attribute__((visibility("hidden")));
/* The thread that is about to have t's slot counts from zero; what its last thread counted goes to the process's. */
void rs_calls_claim(struct rs_thread *t) __attribute__((visibility("hidden")));
/* On the thread itself: from here on, up to rs_calls_leave, it counts in t's slot. */
void rs_calls_enter(struct rs_thread *t) __attribute__((visibility("hidden")));
void rs_calls_leave(void) __attribute__((visibility("hidden")));
/* The process's first region is known to Go. */
void rs_calls_region(struct rs_region *shm) __attribute__((visibility("hidden")));
/* In the child of fork: at first nothing may be written to the parent's region (forget), then the child has its own (join). */
void rs_calls_after_fork_forget(void) __attribute__((visibility("hidden")));
void rs_calls_after_fork_join(struct rs_thread *t) __attribute__((visibility("hidden")));
#endif
