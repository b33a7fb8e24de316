/* patch.h: what the rest of the agent asks of patch.c (the engine's requests), trampoline.c (what trampolines are to the program) and trap.c (SIGTRAP). */
#ifndef RS_PATCH_H
#define RS_PATCH_H
#include "core.h"
#include <ucontext.h>

#define RS_INITIAL_EXEC __attribute__((tls_model("initial-exec"), visibility("hidden")))

/* --- patch.c --------------------------------------------------------------------------------------------------------------- */

/* Code of this process is patched, or is about to be. Once true it stays so, in forked children too. */
extern bool rs_patching RS_HIDDEN;
extern uint32_t rs_patch_changes RS_HIDDEN; /* odd while text of the program may be changing under other threads than the one that asked */
/* What this processor has fetched of changed code is forgotten. */
void rs_serialize(void) RS_HIDDEN;
extern bool rs_signals_bare RS_HIDDEN; /* signal.c: some handlers of the program are not shown what they are to see: there were too many */
/* What trampolines find from fs: slots to save registers in, and pointers by enum rs_patch_thread. */
extern __thread uint64_t rs_patch_saves[RS_PATCH_SAVES] RS_INITIAL_EXEC;
extern __thread uint64_t rs_patch_pointers[RS_PATCH_POINTERS] RS_INITIAL_EXEC;

/* On an open session, signals blocked: asks for the process's page and maps it. */
void rs_patch_open(int sock) RS_HIDDEN;
/* Says, once events can be sent, that it does not patch, as that is not for the user's standard error alone. */
void rs_patch_say(struct rs_thread *t) RS_HIDDEN;
/* Asks the engine, and does what it says: 0, or a negative errno; -ESRCH: nobody answers. What was begun then is left in a state in which the program runs. Works in handlers.
 * RS_PATCH_ASK_SITE waits for the patch; RS_PATCH_ASK_SOON for microseconds at most, but when it is asked again, or every so often, and then what others have asked for is put in place, too: 0: it is patched;
 * -EINPROGRESS, -EAGAIN (nobody heard of it), -ETIMEDOUT: not yet; else it stays as it is. Who does not get 0 goes on without. */
long rs_patch_ask(unsigned request, uintptr_t at) RS_HIDDEN;
/* The coordinator of `guard`, while all others stand: as rs_patch_ask. */
long rs_patch_standing(unsigned request, uintptr_t at) RS_HIDDEN;
/* At the start of the process, with the mask that it is to have, and when modules have come or gone. */
void rs_patch_start(uint64_t mask) RS_HIDDEN;
/* Later, with the program's signal mask, which is in force again. */
void rs_patch_started(uint64_t mask) RS_HIDDEN;
/* Before the process has a second thread, or shuts itself in: where patching was put off until now (Config.patch 2) it begins, in a forked child as in its parent. seen: the thread is made by a function of ours, and whoever is recorded can be. */
void rs_patch_threads(bool seen) RS_HIDDEN;
/* It is put off yet: there is one thread, whose accesses come before all that others will make, and nobody is told of them. */
extern bool rs_patch_put_off RS_HIDDEN;
/* Likewise: a stack of so many bytes will be run on. */
void rs_patch_stack(size_t bytes) RS_HIDDEN;
void rs_patch_modules(void) RS_HIDDEN;
void rs_patch_before_fork(void) RS_HIDDEN;
/* In the child of fork, whose code is patched as its parent's was. */
void rs_patch_after_fork(void) RS_HIDDEN;

/* Writes to the program's text, whatever its protection. Negative errno: it cannot be. */
long rs_patch_write(uintptr_t at, const void *bytes, size_t n) RS_HIDDEN;

/* --- trampoline.c ------------------------------------------------------------------------------------------------------------- */

/* The process's index of trampolines: runs, how many read them just now, and what is raised when memory of trampolines is used again. */
extern const struct rs_trampoline_run *rs_patch_runs[RS_PATCH_RUNS] RS_HIDDEN;
extern uint32_t rs_patch_readers RS_HIDDEN, rs_patch_generation RS_HIDDEN;

/* The program's instruction for a pc in a trampoline; else pc itself. */
uintptr_t rs_patch_pc(uintptr_t pc) RS_HIDDEN;
/* An instruction that lies in the 15 bytes up to pc has a trampoline, so text there may be changed: a jump, which uses the bytes of what follows it, or int3. */
bool rs_patch_near(uintptr_t pc) RS_HIDDEN;
/* pc is in code of ours, and not where one of the program's instructions begins that was not shown yet: no step that a program makes which steps itself. */
bool rs_patch_midway(uintptr_t pc) RS_HIDDEN;

/* A context of a signal is shown to the program as if it had been interrupted in its own code, and goes back to what it was if it is still the same after the handler. */
struct rs_access_context;
struct rs_shown {
	bool moved, inside, hooked, outer; /* inside: in a function that a recipe called, of which `context` tells; outer: that was the thread's context */
	uint32_t generation;
	uintptr_t rip, resume;
	struct rs_access_context *context;
	greg_t was[23], seen[23];
};
void rs_patch_show(ucontext_t *uc, siginfo_t *info, struct rs_shown *s) RS_HIDDEN;
void rs_patch_resume(ucontext_t *uc, const struct rs_shown *s) RS_HIDDEN;

/* --- trap.c ------------------------------------------------------------------------------------------------------------------ */

/* SIGTRAP is ours, and must not be blocked; the program's own action and mask are kept beside. */
extern bool rs_trapping RS_HIDDEN;
long rs_trap_begin(void) RS_HIDDEN;
/* A thread that meets int3 at `at` goes on at `to`; 0: it is no longer ours. Under the lock of requests. */
long rs_trap_set(uintptr_t at, uintptr_t to) RS_HIDDEN;
/* An int3 there leads somewhere. */
bool rs_trap_leads(uintptr_t at) RS_HIDDEN;
/* The program's SIGTRAP. */
int rs_trap_action(const struct sigaction *act, struct sigaction *old) RS_HIDDEN;
/* The set without SIGTRAP, in *room. */
const sigset_t *rs_trap_filter(const sigset_t *set, sigset_t *room) RS_HIDDEN;
/* Whether the program has SIGTRAP blocked on this thread; and that it has, or not, from now on. */
bool rs_trap_blocked(void) RS_HIDDEN;
void rs_trap_block(bool blocked) RS_HIDDEN;
/* A handler is about to run, of any signal's: what the thread's mask says now of whether it has it blocked. */
void rs_trap_interrupts(const ucontext_t *uc) RS_HIDDEN;
/* Around a handler that has it blocked by its action's mask, in the frame of whoever calls it; a handler that is left by longjmp does no harm. */
uintptr_t rs_trap_enter(void *frame) RS_HIDDEN;
void rs_trap_leave(uintptr_t before) RS_HIDDEN;
/* Of which signals the program's actions block SIGTRAP, which the kernel is not told of. */
extern uint64_t rs_trap_masks RS_HIDDEN;
/* Around the life of a vfork child: what it says of masks and actions is for itself. */
void rs_trap_vfork(void) RS_HIDDEN;
void rs_trap_vforked(void) RS_HIDDEN;
/* An exec hands on whether SIGTRAP is blocked or ignored, a new process (exec false) whether it is blocked: the kernel has what the program set, until it is taken back. In between only libc's code
 * and ours may run. errno stays. */
unsigned rs_trap_hand_on(bool exec) RS_HIDDEN;
void rs_trap_take_back(unsigned what) RS_HIDDEN;
/* A new thread, whose creator has it blocked or not; libc may have set the kernel's mask from the thread's attributes. */
void rs_trap_thread(bool creator) RS_HIDDEN;

/* --- sigraw.c: system calls about signals that the program makes past libc's functions -------------------------------------------------------------- */

/* A kernel's struct sigaction. */
struct rs_kernel_action { uintptr_t handler; uint64_t flags; uintptr_t restorer; uint64_t mask; };
/* In place of the system calls, where code is patched and rs_calls_on is not set: their result. */
long rs_raw_action(long sig, const struct rs_kernel_action *act, struct rs_kernel_action *old, long size) RS_HIDDEN;
long rs_raw_mask(long how, const uint64_t *set, uint64_t *old, long size) RS_HIDDEN;
/* trap.c: the program's SIGTRAP, by the kernel's structure. */
long rs_trap_raw(const struct rs_kernel_action *act, struct rs_kernel_action *old) RS_HIDDEN;
/* signal.c: the action with a stub for its handler and without SIGTRAP in its mask, and the other way round. */
void rs_signal_wrap(int sig, struct rs_kernel_action *act, bool *trap_was_masked) RS_HIDDEN;
void rs_signal_unwrap(struct rs_kernel_action *old, bool trap_was_masked) RS_HIDDEN;
/* calls.c: before the program's pthread_cancel. */
void rs_cancel_prepare(void) RS_HIDDEN;
/* Sites that were asked for and are not patched; UINT32_MAX: no code is. */
uint32_t rs_patch_missing(void) __attribute__((visibility("hidden")));
/* vm.c: has the heap begin elsewhere: brk goes up to the place, and what it has mapped on the way is given back. brk(2) adds to the mapping that ends where it stands, or makes one. Refused where
 * somebody has memory of it already, or counts on its place (such as programs that write themselves to a file, before the kernel is asked to leave addresses as they are), and where a
 * limit is on it, since the kernel would count the way. A program that takes the heap back below its beginning, which natively fails, would unmap what is there now. */
long rs_vm_move_heap(uintptr_t from, uintptr_t to) __attribute__((visibility("hidden")));
/* Maps what trampolines share with ripstop below 2 GiB; near: where something else of this process lies, by chance. Negative: there is no place, or the kernel refuses. */
long rs_vm_map_shared(long near, long bytes, int fd) RS_HIDDEN;
#endif
