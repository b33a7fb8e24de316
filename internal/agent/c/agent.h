/* agent.h: what the files of the agent share. See docs/architecture.md.
 *
 * Ground rules (every file repeats the ones that bite it):
 *  1. The OS only through os.h. No libc function that can lock, allocate, or touch errno, except through rs_real.
 *  2. No malloc. Memory comes from rs_os_map and is counted.
 *  3. An interposed function first asks `struct rs_thread *t = rs_self()`. NULL (too early, too late, inert, vfork child, inside the
 *     agent) means: call the real function and nothing else.
 *  4. errno after an interposed function is what the real one left.
 *  5. Facts only: no policy, no wording, no formatting of reports.
 *
 * Glossary: lane = ring of one thread; slot = the thread's place in shared memory; region = a memfd with up to 64 slots;
 * inert = no session, or given up; filtered/all = which events are sent (rs_config.all).
 */
#ifndef RS_AGENT_H
#define RS_AGENT_H

#define _GNU_SOURCE 1
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <threads.h>
#include "race.h"
#include "zz_wire.h"

#define RS_EXPORT __attribute__((visibility("default")))
#define RS_TLS static __thread __attribute__((tls_model("initial-exec")))
#define RS_LIKELY(x) __builtin_expect(!!(x), 1)
#define RS_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define RS_CALLER() ((uintptr_t)__builtin_return_address(0))
/* Exports `name` for `target`, a function under no name of libc. */
#define RS_NAME(name, target) __asm__(".globl " #name "\n.type " #name ", @function\n.set " #name ", " #target "\n")
/* Exports `name`, another name that libc has for `target`, which we define. A library that interposes target itself (tcmalloc's sbrk, Chromium's close)
 * calls libc's by this name: then it must get libc's, since ours would call the library's again, for ever. */
struct rs_second { const char *name, *first; void **own; };
#define RS_ALIAS(name_, target_) \
	void *rs_second_##name_ __attribute__((visibility("hidden"))); \
	static const struct rs_second rs_second_row_##name_ = {#name_, #target_, &rs_second_##name_}; \
	static const struct rs_second *const rs_second_at_##name_ __attribute__((section("rs_seconds"), used)) = &rs_second_row_##name_; \
	__asm__(".pushsection .text\n\t.p2align 4\n\t.globl " #name_ "\n\t.type " #name_ ", @function\n\t.set rs_first_" #name_ ", " #target_ "\n" \
		#name_ ":\n\t.cfi_startproc\n\tmovq rs_second_" #name_ "(%rip), %r11\n\ttestq %r11, %r11\n\tjnz 1f\n\tjmp rs_first_" #name_ "\n" \
		"1:\tjmp *%r11\n\t.cfi_endproc\n\t.size " #name_ ", .-" #name_ "\n\t.popsection")

/* --- the thread ------------------------------------------------------------------------------------------------------- */

/* Private state of one thread; lives in memory of the agent until the thread's slot is reused. Only its own thread writes it. */
struct rs_thread {
	struct rs_slot *slot;      /* shared with Go */
	uint64_t *ring[2];         /* words of lane 0 and 1 */
	uint64_t cached_tail[2];   /* last Tail seen, to avoid reading Go's cache line */
	uint32_t number;           /* as in events; the first thread is 1 */
	uint32_t tid;              /* kernel tid, as in a mutex's __owner */
	uint32_t nested;           /* 1 while a record is written to lane 1: then signals are blocked */
	uint32_t vfork_depth;      /* reserved to proc.c */
	union {
		struct {
			uint16_t inside;     /* > 0: inside the agent or in a real function called by it that may call back; see rs_enter */
			uint16_t slow;       /* 1: rs_quick was not set when the thread last looked (sync.c), or there is no list */
			uint32_t held_count; /* locks held; mirrors slot->held_count */
		};
		uint64_t quick; /* all three, where one comparison must do: 0, or RS_QUICK_ONE with one lock held. Stored as a whole, or the load waits. */
	};
	uint32_t held_cap;
	struct rs_held_slot *held; /* all of them, oldest first: slot->held, or where that is too short memory of the agent's, of which the slot has the first */
	uintptr_t stack_lo, stack_hi;
	uint64_t locks_taken;
	void *order_cache;         /* sync.c: hashes of orders already sent */
	void *unwind_cache;        /* unwind.c: pc → rule */
	void *heap_recent;         /* heap.c: recent allocations */
	void *stack_memory;        /* stack.c: stacks taken before */
	uint32_t stacks_by, stacks_taken; /* stack.c: as long as there is none: whose, how many */
	void *accesses;            /* access.c: what this thread has told of its accesses */
	void *race;                /* racelive.c: the detector's thread; it has its number */
	uint64_t *record[2];       /* ring.c: the one that is being written */
	void *origin;              /* frames.c: where its creator's frames were */
	void *frames_told;         /* frames.c */
	uint64_t put_off_mask;     /* signal.c: the mask to go back to when a handler that was put off may run */
	uint64_t stack_end;        /* how far down its stack may grow; 0: not known. stack_lo is no lower */
	uintptr_t outermost;       /* from here on its stack is as it is while the program's function runs that it was made for, which returns to below: of the first thread nothing is */
	struct rs_race_frames frames; /* tell.c: what becomes of accesses to its own frames; others store there, too */

	/* Of the core (region.c, ring.c, thread.c). The pointers above and the memory behind them survive until the slot's next thread, which
	 * finds them as they were: their owners reset them when they see a new `number`. */
	uint64_t head[2];          /* words ever written to lane 0 and 1 */
	uint64_t next[2];          /* head after the record that is being written */
	uint64_t limit[2];         /* up to here rs_reserve needs not look at anything else */
	uint64_t mask[2];          /* words of the ring - 1 */
	uint64_t last_ts[2];
	uintptr_t emit_sp;         /* where on the stack the emission on lane 0 that is under way began; 0: none is */
	uintptr_t inside_sp;       /* where the outermost rs_enter is */
	uint64_t signals;          /* mask to go back to after an emission on lane 1 */
	uint64_t exit_value;       /* what thread-exit will say */
	struct rs_home *home;      /* the region's private side, and our index there */
	struct rs_handle *handle;
	struct rs_handle *creates; /* of the thread that it is about to create, or join: which node that is, is not the same in a re-execution, so it is in no frame and no register while glibc runs */
	uint32_t index;
	uint32_t end_rounds;
};

extern __thread struct rs_thread *rs_thread_tls __attribute__((tls_model("initial-exec"), visibility("hidden")));
extern struct rs_config rs_config __attribute__((visibility("hidden"))); /* from the Welcome; zero when inert */
extern uint32_t rs_active __attribute__((visibility("hidden")));         /* 1 while there is a session we emit to */
extern struct rs_ctl *rs_ctl __attribute__((visibility("hidden")));      /* NULL when inert */
/* Set by proc.c when the program puts itself under seccomp: from then on no sockets, no new regions, no unusual system calls. */
extern uint32_t rs_sandboxed __attribute__((visibility("hidden")));
/* A library was loaded that calls libc past us (RTLD_DEEPBIND): blocks and locks may come and go unseen. */
extern bool rs_bypassed __attribute__((visibility("hidden")));

/* The calling thread if its events are wanted now, else NULL. A thread not made by an interposed pthread_create (raw clone, or
 * before ours) gets its state on first use when that is safe. Never true in a vfork child or while t->inside. */
struct rs_thread *rs_self_slow(void);
static inline struct rs_thread *rs_self(void)
{
	struct rs_thread *t = rs_thread_tls;
	if (RS_LIKELY(t && !t->inside))
		return t;
	return rs_self_slow();
}
#define RS_QUICK_ONE (1ull << 32)
static inline bool rs_may_be_quick(const struct rs_thread *t) { return (uint32_t)t->quick == 0; }
/* Between these, interposed functions called on this thread pass straight through (for real functions that call public ones). */
static inline void rs_enter(struct rs_thread *t)
{
	uintptr_t here = (uintptr_t)__builtin_frame_address(0);
	if (t->inside == 0)
		t->inside_sp = here;
	__asm__ volatile("" ::: "memory");
	if (++t->inside == 1) {
		__asm__ volatile("" ::: "memory");
		t->inside_sp = here; /* again: a handler may have come in between */
	}
	__asm__ volatile("" ::: "memory");
}
static inline void rs_leave(struct rs_thread *t)
{
	__asm__ volatile("" ::: "memory");
	if (RS_LIKELY(t->inside))
		t->inside--;
}

/* --- events (ring.c) -------------------------------------------------------------------------------------------------- */

/* Room for `words` words (header included, ≤ RS_MAX_RECORD_WORDS) and w[0] set to the timestamp and id. NULL when detached: then
 * the caller skips the event. Must be followed by rs_commit on the same thread, without anything in between that can fault or
 * longjmp. Async-signal-safe. */
uint64_t *rs_reserve(struct rs_thread *t, unsigned id, unsigned words);
void rs_commit_record(struct rs_thread *t);
void rs_commit_record_urgent(struct rs_thread *t);
/* Never the last thing in a function: a tail call would take away the frame by which rs_left_behind tells an interrupted emission from one that
 * was left for good. */
static inline void rs_commit(struct rs_thread *t)
{
	rs_commit_record(t);
	__asm__ volatile("" ::: "memory");
}
/* As rs_commit, and wakes the Go side. For misuse, process-end, want that may close a cycle. */
static inline void rs_commit_urgent(struct rs_thread *t)
{
	rs_commit_record_urgent(t);
	__asm__ volatile("" ::: "memory");
}
/* Copies a Bytes tail of n bytes to w (whole words, padded). */
void rs_put_bytes(uint64_t *w, const void *p, size_t n);

/* Usage: RS_EMIT(t, RELEASE, release, obj, RS_OBJECT_MUTEX, 0, 0) for events without a tail. The arguments are evaluated inside the
 * reservation: nothing in them may emit (RS_STACK does). */
#define RS_EMIT_AS(commit, t, ID, name, ...) do { \
	uint64_t *w_ = rs_reserve((t), RS_EV_##ID, RS_##ID##_WORDS); \
	if (w_) { rs_put_##name(w_, __VA_ARGS__); commit(t); } } while (0)
#define RS_EMIT(t, ID, name, ...) RS_EMIT_AS(rs_commit, t, ID, name, __VA_ARGS__)
#define RS_EMIT_URGENT(t, ID, name, ...) RS_EMIT_AS(rs_commit_urgent, t, ID, name, __VA_ARGS__)

/* Says a notice event once per (what) and process. */
void rs_notice(struct rs_thread *t, unsigned what, int err, uint64_t aux);

/* --- stacks (unwind.c, stack.c) --------------------------------------------------------------------------------------- */

/* The id of the caller's stack, taken with at most `depth` frames; 0 if none is taken (depth 0, table full). The frames begin with the
 * function that called the interposed one: pc is RS_CALLER() and fp is __builtin_frame_address(0) of the interposed function,
 * which is compiled with frame pointers. Interned per process; the `stack` event is sent when the id is new. Async-signal-safe. */
uint32_t rs_stack_from(struct rs_thread *t, uintptr_t pc, void *fp, unsigned depth);
#define RS_STACK(t) rs_stack_from((t), RS_CALLER(), __builtin_frame_address(0), rs_config.stack_depth)
#define RS_STACK_ALLOC(t) rs_stack_from((t), RS_CALLER(), __builtin_frame_address(0), rs_config.alloc_depth)
/* As rs_stack_from, but the `stack` event may not be sent yet: whoever sends the number says so before, by rs_stack_tell (any number, 0 too). */
uint32_t rs_stack_kept(struct rs_thread *t, uintptr_t pc, void *fp, unsigned depth);
/* What rs_stack_kept would return, if it is among those that the thread remembers; else 0. */
uint32_t rs_stack_again(const struct rs_thread *t, uintptr_t pc, void *fp, unsigned depth);
void rs_stack_tell(struct rs_thread *t, uint32_t id);
/* A number for the stack with the locks that the thread holds now (the oldest 16); the stack's own if it holds none. Where a lock was taken is told if its stack is known by now. No vector
 * registers are used. */
uint32_t rs_stack_holding(struct rs_thread *t, uint32_t stack);
/* From a signal's ucontext. */
uint32_t rs_stack_ucontext(struct rs_thread *t, const void *ucontext, unsigned depth);

/* --- counts by cache line (lines.c) ------------------------------------------------------------------------------------ */

void rs_lines_thread_end(struct rs_thread *t);  /* tells what is not told */
void rs_lines_process_end(struct rs_thread *t); /* likewise, of all threads */

/* --- life of the agent (init.c), modules (module.c) -------------------------------------------------------------------- */

/* Opens the session if there is one; called by the constructor and by whatever is interposed and called earlier. Idempotent. */
void rs_init(void);
/* In the child of fork, before any handler of the program: forget the parent's regions and threads; a new region is made by the first
 * event that the child sends. */
void rs_init_after_fork(void);
/* This forked child has sent nothing: then Go need not get to know it for it to end, or to become another program (which is most of what shells'
 * children do), unless all events are wanted. */
bool rs_silent(const struct rs_thread *t);
/* Emits nothing from now on, in this process. */
void rs_detach(void);
/* dl.c: the program has asked for a namespace of dlmopen. */
extern bool rs_namespaces __attribute__((visibility("hidden")));
/* Looks again at the loaded modules (after dlopen, dlclose) and sends module and module-gone. asked: the engine knows all of them. */
void rs_modules_changed(struct rs_thread *t, bool asked);
/* In ld.so, by the thread whose call loads some, which have not run yet: sends module of them. What it did before is in no order with others for that. */
void rs_modules_come(struct rs_thread *t);

/* --- threads (thread.c) ------------------------------------------------------------------------------------------------ */

/* Number of the live or dead-but-unjoined thread with this handle, 0 if not known. */
uint32_t rs_thread_of(pthread_t handle);
/* Marks the calling thread as blocked in its slot, for Go's second look at a deadlock, and unmarks it. Between them lies the blocking
 * call. What was marked before (a signal handler waits inside a wait; kind 0: nothing was) is returned and goes back to rs_wait_end. urgent: the
 * `want` should ring the doorbell, since the thread holds something or no thread runs any more. */
struct rs_wait { uint32_t kind, stack; uint64_t obj; bool urgent; };
struct rs_wait rs_wait_begin(struct rs_thread *t, unsigned kind, uintptr_t obj, uint32_t stack);
void rs_wait_end(struct rs_thread *t, const struct rs_wait *before);
/* Called by proc.c in the exiting process and by thread.c at thread end: sends `holds`, and misuse exit-holding-lock where due. */
void rs_sync_thread_end(struct rs_thread *t);
/* region.c: writes to their slots how many locks all threads have taken, before the process ends. */
void rs_count_locks(void);
/* sync.c: clears the order cache; called at thread-create and join. */
void rs_sync_new_segment(struct rs_thread *t);
/* sync.c: in the child of fork, once t is the child's thread with its new tid and slot: the other threads are not here, the held list
 * (which is private memory) stays. Called by rs_init_after_fork's user of the new slot before the child takes a lock. */
void rs_sync_after_fork(struct rs_thread *t);

/* --- epochs of `guard` (guardepoch.c) ------------------------------------------------------------------------------------- */

/* Around what no epoch can be executed again with; why: enum GuardLost. Nothing where guard is off. */
void rs_guard_out(uint32_t why) __attribute__((visibility("hidden")));
void rs_guard_in(void) __attribute__((visibility("hidden")));
/* The epoch cannot be executed again. */
void rs_guard_lost(uint32_t why) __attribute__((visibility("hidden")));
/* For good: nothing is recorded any more in this process. */
void rs_guard_off(void) __attribute__((visibility("hidden")));
/* So too, and where this is the program's only thread the process has no other task afterwards: of whoever goes into a namespace of users the kernel wants that. */
void rs_guard_leave(void) __attribute__((visibility("hidden")));
/* The coordinator's tid, 0: this process has none. */
uint32_t rs_guard_coordinator(void) __attribute__((visibility("hidden")));
/* Is it the coordinator that has this stack pointer? */
bool rs_guard_is_coordinator(uintptr_t sp) __attribute__((visibility("hidden")));
/* In a forked child, where there is no log, nor any other thread: all is done as without one from now on, or until it has one of its own (guardfork.h). */
void rs_guard_forget(void) __attribute__((visibility("hidden")));
/* This thread begins; and it is about to end (sp: the program's stack pointer). */
void rs_guard_thread_begin(bool own_stack) __attribute__((visibility("hidden")));
void rs_guard_thread_end(uintptr_t sp) __attribute__((visibility("hidden")));
/* The process is about to end. */
void rs_guard_exit(void) __attribute__((visibility("hidden")));

/* --- sync objects and memory (sync*.c, heap.c) -------------------------------------------------------------------------- */

/* heap.c asks, before [p,p+n) is given back: were sync objects seen there? If so it sends block-gone (and free-locked) and forgets
 * them. Cheap when there are none in the pages of the range. */
void rs_sync_memory_gone(struct rs_thread *t, uintptr_t p, size_t n, uint32_t stack);
/* The same of mappings, which may be closed to reading, or be gone already. */
void rs_sync_memory_unmapped(struct rs_thread *t, uintptr_t p, size_t n);
/* sync.c asks: the heap block that holds p, if heap.c still knows it. *site: the stack is a representative one (event in-block). */
bool rs_heap_block_of(struct rs_thread *t, uintptr_t p, uintptr_t *block, size_t *size, uint32_t *stack, bool *site);

/* --- signal masks (sigmask.c), all mode only ---------------------------------------------------------------------------- */

/* Says that the mask was changed. t may be NULL. */
void rs_sigmask_changed(struct rs_thread *t, unsigned how, uint64_t set);
/* Around a call that waits with the mask at `set` (which may be NULL, or not readable). */
struct rs_mask_wait { uint64_t back; bool told; };
struct rs_mask_wait rs_mask_wait_begin(const void *set);
void rs_mask_wait_end(const struct rs_mask_wait *w);

/* --- processes (proc.c) ------------------------------------------------------------------------------------------------- */

/* True in a vfork child (the kernel's pid is not ours). Costs a system call; only on rare paths. */
bool rs_in_vfork(void);
/* The variables to add to a child's environment, "LD_PRELOAD=…" and "RIPSTOP_SESSION=…"; NULL when not to follow. init.c. */
extern char *rs_env_preload, *rs_env_session;

/* --- real functions (real.c) --------------------------------------------------------------------------------------------- */

/* One entry per interposed function, found once by rs_real_init; REALS(X) in real.h lists name, version ("" for default), type. */
#include "real.h"

#endif
