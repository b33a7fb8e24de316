/* core.h: what the files of the agent's core share among themselves: os.c, init.c, session.c, region.c, ring.c, thread.c, module.c,
 * unwind.c, stack.c. Other files use agent.h. */
#ifndef RS_CORE_H
#define RS_CORE_H
#include "agent.h"
#include "os.h"

#define RS_PAGE 4096ul
#define RS_HIDDEN __attribute__((visibility("hidden")))
#define RS_BARRIER() __asm__ volatile("" ::: "memory")

/* --- os.c ---------------------------------------------------------------------------------------------------------------- */

/* All signals are blocked until rs_os_signals gets the returned mask back. */
extern uint64_t rs_os_open RS_HIDDEN; /* signals that are not blocked even so (guarddebug.c) */
uint64_t rs_os_no_signals(void) RS_HIDDEN;
void rs_os_signals(uint64_t mask) RS_HIDDEN;
/* A lock among the threads of this process, for rare paths. Signals must be blocked, so that no handler meets a lock that its own
 * thread holds. */
struct rs_lock { uint32_t word; };
void rs_lock(struct rs_lock *l) RS_HIDDEN;
bool rs_lock_try(struct rs_lock *l) RS_HIDDEN; /* after a moment */
void rs_unlock(struct rs_lock *l) RS_HIDDEN;
/* futex: waits at most ms while *word == value. 0, or -ETIMEDOUT, -EAGAIN, -EINTR. */
long rs_os_wait(uint32_t *word, uint32_t value, bool shared, unsigned ms) RS_HIDDEN;
void rs_os_wake(uint32_t *word, bool shared) RS_HIDDEN;
/* The thread of this process waits in a futex, as far as the kernel tells. */
bool rs_os_in_futex(uint32_t tid) RS_HIDDEN;
uint32_t rs_os_ms(void) RS_HIDDEN; /* CLOCK_MONOTONIC, truncated */
uint32_t rs_os_pid(void) RS_HIDDEN;
uint32_t rs_os_tid(void) RS_HIDDEN;
void rs_os_copy(void *to, const void *from, size_t n) RS_HIDDEN;
void rs_os_clear(void *p, size_t n) RS_HIDDEN;
size_t rs_os_length(const char *s) RS_HIDDEN;
bool rs_os_equal(const void *a, const void *b, size_t n) RS_HIDDEN;
/* Runs fn on a task with its own table of descriptors, so that what fn opens never shows in the program's. Signals must be blocked.
 * fn may use system calls and the agent's memory, nothing else. Falls back to calling fn here. */
void rs_os_aside(void (*fn)(void *), void *arg) RS_HIDDEN;
/* Runs fn where what it opens disturbs nobody: here while there is one thread, with the limit on descriptors raised for the moment if it is
 * very low, else aside. Signals must be blocked. */
void rs_os_apart(void (*fn)(void *), void *arg) RS_HIDDEN;
/* One line on stderr: "ripstop: process PID: <what> (error N)". */
void rs_os_say(const char *what, long error) RS_HIDDEN;
/* The session's first process begins: what it has for standard error is the user's, and rs_os_say writes to no other file. */
void rs_os_say_begin(void) RS_HIDDEN;
/* What rs_os_map gave, the first RS_OS_RANGES pieces of it; some may be unmapped by now. */
enum { RS_OS_RANGES = 1024 };
struct rs_range { uintptr_t lo, hi; };
extern struct rs_range rs_os_ranges[RS_OS_RANGES] RS_HIDDEN;
uint32_t rs_os_range_count(void) RS_HIDDEN;
extern uint64_t rs_agent_bytes RS_HIDDEN; /* mapped by rs_os_map */
/* From now on what rs_os_map gives lies from there on, if that is free. */
void rs_os_place(uintptr_t at) RS_HIDDEN;
bool rs_os_placed(void) RS_HIDDEN;
/* Between these, rs_os_map takes what is not large from one piece of memory. Before there are other threads, signals blocked. */
void rs_os_piece_begin(void) RS_HIDDEN;
void rs_os_piece_end(void) RS_HIDDEN;

/* --- init.c ---------------------------------------------------------------------------------------------------------------- */

extern struct rs_process { uint64_t id, parent; uint32_t pid, parent_thread; uint8_t start; bool begun; } rs_process RS_HIDDEN;
bool rs_go_gone(uint32_t *beat, uint32_t *since) RS_HIDDEN;
/* At once; false where it cannot be told. */
bool rs_go_dead(void) RS_HIDDEN;
void rs_doorbell(void) RS_HIDDEN;
/* The path of the program's file, without a NUL; 0 bytes: it cannot be told. */
size_t rs_exe(char *to, size_t room) RS_HIDDEN;
/* rs_detach, and says why, once. */
void rs_give_up(const char *what, long error) RS_HIDDEN;
/* rs_detach in a forked process that cannot send anything; Go is told of it through the control page. */
void rs_not_joined(long error) RS_HIDDEN;
/* There is nobody to connect to: no session any more, which is no news to anybody. */
static inline bool rs_nobody(long error)
{
	return error == -111 /* ECONNREFUSED */ || error == -2 /* ENOENT */ || error == -104 /* ECONNRESET */ || error == -32 /* EPIPE */;
}
/* Sends `process`, `thread-start` and the modules: the first events of a process. */
void rs_begin_process(struct rs_thread *t) RS_HIDDEN;

/* --- session.c --------------------------------------------------------------------------------------------------------------- */

/* All return a descriptor or 0, or a negative errno. */
long rs_session_connect(void) RS_HIDDEN;
long rs_session_hello(int sock) RS_HIDDEN;
long rs_session_welcome(int sock, struct rs_welcome *w, int *ctl) RS_HIDDEN;
long rs_session_region(int sock, int memfd) RS_HIDDEN;
/* Asks for the tables of n ≤ 64 modules, behind a hello or with the token; then fds gets those that came (-1: none). */
long rs_session_ask_tables(int sock, const struct rs_module_request *req, unsigned n) RS_HIDDEN;
long rs_session_tables(int sock, unsigned n, int *fds) RS_HIDDEN;
long rs_session_patch(int sock, int fds[2]) RS_HIDDEN;
extern char rs_session_dir[128] RS_HIDDEN;

/* --- region.c ------------------------------------------------------------------------------------------------------------------ */

/* The private side of a region. The shared side stays at one address for the life of the home: in a forked child it is first replaced by
 * private memory (the parent's ring must not be written), then by a region of the child's own. */
struct rs_home {
	struct rs_region *shm;
	struct rs_slot *slot;      /* shm's slots */
	uint64_t bytes;
	uint64_t claimed;          /* bit i: slot i is somebody's; atomic */
	uint32_t slots;
	uint32_t attached;         /* 1: shm is a region that Go knows */
	uint32_t moved, to;        /* slots that have each other's rings */
	uint64_t stale;            /* bit i: the i'th rings are nobody's: an emission that a fork interrupted may still write there */
	uint64_t populated[RS_THREADS_PER_REGION][2]; /* words of the ring whose pages are there */
	struct rs_thread threads[RS_THREADS_PER_REGION];
};
/* A thread with a slot, state not yet live; NULL and a reason (negative errno) if there is none to be had. sock: an open session, or -1. */
struct rs_thread *rs_region_claim(int sock, long *why) RS_HIDDEN;
/* guard, after a rollback: threads tell others nothing. room: of ours, survives. */
enum { RS_REGIONS_ASIDE = 64 };
void rs_region_aside(void *room[RS_REGIONS_ASIDE]) RS_HIDDEN;
/* Calls f for each thread that there is. */
void rs_region_each(void (*f)(struct rs_thread *t)) RS_HIDDEN;
/* Coordinator, world stopped: the thread with this stack pointer is in the middle of an event, or a handler on top of that is. Who went back to here would write the event's time and words again, where by then others' may lie. */
bool rs_ring_emits(const struct rs_thread *t, uintptr_t sp) RS_HIDDEN;
void rs_region_unclaim(struct rs_thread *t) RS_HIDDEN;
/* Makes sure that t's region is known to Go; false: it cannot be, and we have detached. */
bool rs_region_attach(struct rs_thread *t) RS_HIDDEN;
/* Likewise; a negative errno where it cannot be, and nothing has happened. */
long rs_region_try(struct rs_thread *t) RS_HIDDEN;
/* Makes pages of the ring up to head word `words` present, so that no store can fail. Negative errno. */
long rs_region_populate(struct rs_thread *t, unsigned lane, uint64_t words) RS_HIDDEN;
/* Makes pages of a region present, so that no store to them can fail. Negative errno. */
long rs_region_present(void *p, uint64_t bytes) RS_HIDDEN;
void rs_region_after_fork(struct rs_thread *t) RS_HIDDEN;
void rs_region_mark_detached(void) RS_HIDDEN;
/* The head that carries this process's counters. Private memory, never NULL, when there is no region. */
extern struct rs_region *rs_counters RS_HIDDEN;

/* --- thread.c -------------------------------------------------------------------------------------------------------------------- */

void rs_thread_init(void) RS_HIDDEN;
struct rs_thread *rs_thread_main(int sock, uintptr_t stack_hi, long *why) RS_HIDDEN;
void rs_thread_say_start(struct rs_thread *t) RS_HIDDEN;
void rs_thread_after_fork(struct rs_thread *t) RS_HIDDEN;
/* The frame in which `mark` was taken is gone: somebody left it by longjmp, or by being cancelled, out of a signal handler. */
bool rs_left_behind(struct rs_thread *t, uintptr_t mark, bool look_for_handler) RS_HIDDEN;
extern uint32_t rs_live_threads RS_HIDDEN;
/* There was, or is about to be, another thread in this process than its first. */
extern bool rs_threaded RS_HIDDEN;

/* --- module.c ---------------------------------------------------------------------------------------------------------------------- */

enum { RS_TABLE_NEEDED, RS_TABLE_HAS, RS_TABLE_NONE };
struct rs_module {
	uintptr_t base, end;       /* end 0: a free entry */
	uintptr_t bias;
	uint32_t id;
	uint32_t table;
	uintptr_t rows_base;       /* what the rows' PC is relative to, as an address in the process */
	const struct rs_unwind_rule *rules;
	const struct rs_unwind_row *rows;
	uint32_t rule_count, row_count, page_count;
	const uint32_t *pages;     /* of each page of the code how many rows begin below it */
	uint32_t seen;
};
void rs_modules_init(uintptr_t vdso) RS_HIDDEN;
/* Asks for all their tables behind the hello; takes the answer. */
void rs_modules_ask(int sock) RS_HIDDEN;
bool rs_modules_answered(int sock) RS_HIDDEN;
void rs_modules_end(void) RS_HIDDEN;
void rs_modules_say(struct rs_thread *t) RS_HIDDEN; /* sends `module` for all */
extern struct rs_module *rs_modules RS_HIDDEN; /* NULL: nothing is known yet */
extern uint32_t rs_module_count RS_HIDDEN;     /* entries ever used, freed ones included */
/* Of those that are known. */
static inline struct rs_module *rs_module_known(uintptr_t pc)
{
	uint32_t n = __atomic_load_n(&rs_module_count, __ATOMIC_ACQUIRE);
	for (uint32_t i = 0; i < n; i++)
		if (pc < __atomic_load_n(&rs_modules[i].end, __ATOMIC_ACQUIRE) && pc >= rs_modules[i].base)
			return &rs_modules[i];
	return NULL;
}
/* The module that pc lies in, found and announced if it is new, its table fetched; NULL if there is none. */
const struct rs_module *rs_module_of(struct rs_thread *t, uintptr_t pc) RS_HIDDEN;
void rs_modules_after_fork(void) RS_HIDDEN;
extern uint32_t rs_modules_generation RS_HIDDEN; /* changes whenever a cached rule may be wrong */

/* --- unwind.c, stack.c ----------------------------------------------------------------------------------------------------------------- */

#define RS_MAX_DEPTH 256
void rs_stack_init(void) RS_HIDDEN;
void rs_stack_after_fork(void) RS_HIDDEN;
struct rs_frame { uintptr_t pc, rsp, rbp, rbx; bool has_rbp, has_rbx; const uint64_t *gregs; };
/* The words of the stack that a walk's result depends on, innermost first. Where they, the first frame's pc and rsp (and rbp, if entry_rbp) and the
 * modules' generation are the same again, the walk has the same result. unfit: it depends on something else, or on too many. */
#define RS_TRAIL 48
struct rs_trail { bool unfit, entry_rbp; unsigned n; uint64_t at[RS_TRAIL], value[RS_TRAIL]; };
/* Program counters from f outwards. exact: f->pc is an instruction, not a return address. trail may be NULL. */
unsigned rs_walk(struct rs_thread *t, struct rs_frame *f, bool exact, uint64_t *pcs, unsigned depth, struct rs_trail *trail) RS_HIDDEN;
/* Where an instruction of the same function certainly begins, at pc or before; 0: none is known. */
uintptr_t rs_walk_beginning(struct rs_thread *t, uintptr_t pc) RS_HIDDEN;
/* The beginning of the function, or the part of one, that pc is in; 0: not known. */
uintptr_t rs_walk_function(struct rs_thread *t, uintptr_t pc) RS_HIDDEN;
/* How far the canonical frame address lies above the stack pointer there; 0: not known, or not the same each time. */
int32_t rs_walk_offset(struct rs_thread *t, uintptr_t pc) RS_HIDDEN;
/* The caller of an instruction's function, as a walk from there finds it: by the word below f.rsp, and by rbp if by_rbp. Its own rbp lies at rbp_at; 0: it is the instruction's. All of the thread's own stack. False: that is not so simple, or not known (yet). */
struct rs_caller { struct rs_frame f; uintptr_t rbp_at; bool by_rbp; };
bool rs_walk_caller(struct rs_thread *t, uintptr_t pc, uintptr_t rsp, uintptr_t rbp, struct rs_caller *out) RS_HIDDEN;
/* What t->unwind_cache points to, zeroed at first. */
extern const size_t rs_walk_cache_bytes RS_HIDDEN;
/* The stack as it was: these words instead of what lies at [lo, lo+size) now, and from there on what is there, if it is of a frame of this thread
 * (own), or of any that seems one. */
struct rs_past { uintptr_t lo; size_t size; const uint64_t *word; bool own; };
unsigned rs_walk_past(struct rs_thread *t, struct rs_frame *f, const struct rs_past *past, uint64_t *pcs, unsigned depth) RS_HIDDEN;
/* The number of the stack from where an interposed function was called (as rs_stack_from), with its trail and nothing remembered; from f as it was. */
uint32_t rs_stack_trail(struct rs_thread *t, uintptr_t pc, void *fp, unsigned depth, struct rs_trail *trail) RS_HIDDEN;
/* That of an instruction, by which it is known only where it is told: the first frame is 0, for all instructions of one call of a function have one stack then. */
uint32_t rs_stack_here(struct rs_thread *t, uintptr_t pc, uintptr_t rsp, uintptr_t rbp, unsigned depth) RS_HIDDEN;
/* What rs_stack_here would return without a walk, and where the thread remembers it; 0: it does not. */
extern uint32_t rs_stack_generation RS_HIDDEN; /* changes with each fork, in the child: its stacks have other numbers */
uint32_t rs_stack_remembered(struct rs_thread *t, uintptr_t pc, uintptr_t rsp, uintptr_t rbp, unsigned depth, const void **as) RS_HIDDEN;
/* The words that make it that one, at least one: where they lie, in words from rsp on, and what they are. rbp: it counts, too. Returns how many; 0: it is another now. */
struct rs_stack_words { uint16_t at[RS_TRAIL]; uint64_t word[RS_TRAIL]; bool rbp; };
unsigned rs_stack_words(struct rs_thread *t, const void *as, uint32_t id, uintptr_t pc, uintptr_t rsp, uintptr_t rbp, unsigned depth, struct rs_stack_words *out) RS_HIDDEN;
/* As rs_stack_from, below a frame of `function`, which was called from there. */
uint32_t rs_stack_called(struct rs_thread *t, uintptr_t function, uintptr_t pc, uintptr_t rsp, uintptr_t rbp, unsigned depth) RS_HIDDEN;
/* The number of these frames. */
uint32_t rs_stack_of(struct rs_thread *t, const uint64_t *pcs, unsigned n) RS_HIDDEN;
uint32_t rs_stack_past(struct rs_thread *t, struct rs_frame *f, const struct rs_past *past, unsigned depth) RS_HIDDEN;

/* --- frames.c --- */

/* A frame by an address in its function, and where it ends; pc 0: not known. */
struct rs_place { uint64_t pc, cfa; };
/* Copies n bytes that may not be there. */
bool rs_peek(void *to, uintptr_t from, size_t n) RS_HIDDEN;
static inline bool rs_frames_own(const struct rs_thread *t, uintptr_t addr) { return addr - t->stack_lo < t->stack_hi - t->stack_lo; }
/* Of t's own stack, from f outwards. */
struct rs_place rs_frames_find(struct rs_thread *t, struct rs_frame f, uint64_t addr) RS_HIDDEN;
/* Of t's creator's, if the frame is there yet. */
struct rs_place rs_frames_creator(const struct rs_thread *t, uint64_t addr) RS_HIDDEN;
/* Notes where t's frames are for child, which it is about to start; pc and fp as rs_stack_from has them. */
void rs_frames_origin(struct rs_thread *t, struct rs_thread *child, uintptr_t pc, void *fp) RS_HIDDEN;
/* Before an event that speaks of a lock: if it lies on a stack, says in whose frame. stack: that of its use, 0: not known. */
void rs_frames_lock(struct rs_thread *t, uintptr_t obj, uint32_t stack) RS_HIDDEN;

/* --- tell.c --- */

/* Calls f on this stack with the vector registers as they are, and puts them back if f may have been called for a recipe: what recipes call (access.c) has those of the program. This function and
 * those of ring.c, stack.c, unwind.c and os.c touch none. */
void rs_vectors_kept(void (*f)(void *), void *arg) RS_HIDDEN;
/* Clears all these registers, and those of the x87; the control words stay. */
void rs_vectors_clear(void) RS_HIDDEN;
/* How they are saved, as in struct rs_patch_page; size 0: no code is patched. */
extern struct rs_xsave { uint64_t mask; uint32_t size, compact; } rs_xsave RS_HIDDEN;

/* --- racelive.c, with rs_config.races ------------------------------------------------------------------------------------------------------ */

void rs_signal_due(void) RS_HIDDEN; /* what was put off may run: signal.c */
void rs_race_live_begin(void) RS_HIDDEN;
struct rs_race_thread *rs_race_live_known(struct rs_thread *t) RS_HIDDEN;  /* it is the detector's from now on, as below */
struct rs_race_thread *rs_race_live_thread(struct rs_thread *t) RS_HIDDEN; /* NULL: it is not to tell anything */
void rs_race_live_access(struct rs_thread *t, uintptr_t addr, uint64_t size, unsigned kind, uintptr_t pc, uint32_t stack) RS_HIDDEN;
void rs_race_live_event(struct rs_thread *t, const uint64_t *w) RS_HIDDEN;
void rs_race_live_usable(struct rs_thread *t, uintptr_t addr, uint64_t size) RS_HIDDEN;
void rs_race_live_say(struct rs_thread *t, unsigned before) RS_HIDDEN;

/* --- access.c -------------------------------------------------------------------------------------------------------------------------- */

/* Called by recipes before a memory access, with the recipe's context. */
struct rs_access_context;
void rs_access(const struct rs_access_context *c) RS_HIDDEN;
/* Before each event of another kind of a thread that has told accesses. */
void rs_access_event(struct rs_thread *t, unsigned id) RS_HIDDEN;
void rs_access_end(struct rs_thread *t) RS_HIDDEN; /* says what was not told, at the process's end */
#endif
