/* guardlog.h: what an epoch of `guard` writes down, and how a re-execution follows it. guardlog.c; docs/decisions.md, 37.
 *
 * In a nutshell. Each thread has a log of its own in the arena: *events*, in the order in which it did them. An event that others may do in another order (taking a mutex) has a *ticket*: a number of its object,
 * raised while the object is held, so that nothing is shared that the program does not share. A re-execution lets each thread do its next event when the object's *turn* is at the event's ticket. What an event gave back
 * (a try that failed, a timeout, who is the serial thread) is in the log, and what failed is not tried again.
 *
 * Every event is `before`, the act (short: nothing in it waits), `after`. Who must wait does so in guard's own waits, between `before` and the act, in a loop that looks again at the mode after each wait: a rollback may have
 * changed it. An epoch ends with each thread before an event, or in a call that has done nothing yet; so a re-execution ends there too, when the thread's log is used up.
 *
 * Ground rules: guard.h's. What is deterministic state (who is queued at a condition) is private memory and goes back with the threads; the logs, tickets and turns lie in the arena.
 * General registers only, no allocation, no TLS but the pointer to the log. */
#ifndef RS_GUARDLOG_H
#define RS_GUARDLOG_H
#include "guard.h"

enum { RS_GUARD_OFF, RS_GUARD_RECORD, RS_GUARD_REPLAY };

/* Not 0 from rs_guard_log_begin on, before the first checkpoint: the one test of the wrappers. */
extern uint32_t rs_guard_on RS_HIDDEN;
/* RS_GUARD_…; lies in the arena, so ask again after whatever may have been rolled back. */
uint32_t rs_guard_mode(void) RS_HIDDEN;
/* Behind the store of another mode than RECORD, or of an end that is asked for: nobody's acts are quick until that is over. */
void rs_guard_no_quick(void) RS_HIDDEN;

enum {
	RS_GUARD_NONE, RS_GUARD_ASK, RS_GUARD_CALL, RS_GUARD_MUTEX, RS_GUARD_SPIN, RS_GUARD_RWLOCK, RS_GUARD_COND, RS_GUARD_COND_TIMEOUT, RS_GUARD_COND_SIGNAL, RS_GUARD_COND_WAKE, RS_GUARD_BARRIER,
	RS_GUARD_BARRIER_LEAVE, RS_GUARD_MAKES /* an initialiser begins */, RS_GUARD_SEM, RS_GUARD_SEM_POST, RS_GUARD_SEM_VALUE, RS_GUARD_INITIALISER, RS_GUARD_HEAP, RS_GUARD_JOIN, RS_GUARD_EXIT, RS_GUARD_ORDER /* of what threads do with each other's memory */, RS_GUARD_FILE /* order of calls on one thing: guardsys.c */, RS_GUARD_LIBC /* a lock of libc's own, or one that the program makes itself: guardlock.c */, RS_GUARD_ALONE /* a mutex, whichever, in a process that has one thread: there is no order */, RS_GUARD_CLOCK /* a call of the vdso: the object is what was asked, ticket and result are what it gave (guardvdso.c) */, RS_GUARD_TSC /* rdtsc, of which the object says what it gave: guardclock.c */, RS_GUARD_FAULTS /* none: where a thread stands that crashed after another did; the object is the instruction (guardfault.c) */, RS_GUARD_CHANGE /* a word was changed that programs wait for by futexes; the result is what was found there, or what a cmpxchg left: guardfutex.c */, RS_GUARD_CHANGE_RUN /* once more, or several times */, RS_GUARD_CHANGE_NOT /* a cmpxchg found another value, the result */, RS_GUARD_WOKE /* a call has woken so many who waited for that word */, RS_GUARD_QUEUE /* a word of a queue beside a futex was read, written or changed; the result is what was found there: guardfutex.c */, RS_GUARD_QUEUE_RUN /* once more, or several times, and what was found is what it was left with */, RS_GUARD_KINDS
};

struct rs_guard_event {
	uint64_t what;             /* object (56 bits), kind << 56; of a call its number */
	uint32_t ticket;           /* RS_GUARD_UNORDERED; of a call: bytes in the log's second part, behind the result's eight */
	int32_t result;            /* of a mutex, or a lock of libc's, that was taken: minus how often it was taken once more, with nothing of this thread's between and the tickets that follow. RS_GUARD_ALONE: once more, any */
};
#define RS_GUARD_UNORDERED UINT32_MAX
#define RS_GUARD_WHAT(object, kind) (((uint64_t)(object) & 0xffffffffffffffull) | (uint64_t)(kind) << 56)

/* What a thread does, as the coordinator sees it. WAITS: in a wait of ours, and can be woken to look again. ENDED: before an event at which the epoch ends for it. CALL: in a call that has done nothing
 * until it is over (the frame says whether it is). */
enum { RS_GUARD_RUNS, RS_GUARD_WAITS, RS_GUARD_ENDED, RS_GUARD_IN_CALL, RS_GUARD_KEPT /* natively it would be gone (guardthread.c) */, RS_GUARD_UNBORN };
enum { RS_GUARD_CREATES = 1, RS_GUARD_ENDS = 2, RS_GUARD_ORDERED = 4 /* has the lock of guardthread.c */, RS_GUARD_UNHELD = 8 /* has not got it, and goes on as if: no epoch meanwhile is followed */, RS_GUARD_NESTED = 16 /* once more in either, in what runs while it ends */ };

enum { RS_GUARD_INNER = 1, RS_GUARD_AT_CALL };
enum { RS_GUARD_HELD = 16 };

/* One thread's, in the arena. Only its thread writes it, but for the coordinator while that one stands: a line of memory is no other thread's, too. What quick acts look at is in the first. */
struct rs_guard_log {
	uint32_t tid;              /* 0: nobody's */
	uint32_t at;               /* events written, or in a re-execution done again */
	uint32_t quick;            /* up to here quick acts append them. 0: none is quick, as no epoch is recorded, or it is about to end, or handlers wait; or nobody has looked since: append does */
	uint32_t inner;            /* RS_GUARD_INNER: between before and after, awake: no checkpoint now. RS_GUARD_AT_CALL: between the look at a system call and its result: none but where the call is (to be) made */
	uint32_t signals;          /* handlers that wait to run: guardsignal.c */
	uint32_t index;
	struct rs_guard_event *event; /* one before the first can be read */
	uint64_t sp;               /* the program's stack pointer where it called what does the event: below it is nothing of the program's */
	uint32_t end;              /* REPLAY: events there are */
	uint32_t run;              /* REPLAY: how much of the event at `at` was done again, if it is several */
	uint32_t state;            /* RS_GUARD_RUNS … */
	uint32_t bytes_at, bytes_end;
	uint32_t outside;          /* > 0: in something that no epoch can follow: its calls are not looked at, and each epoch meanwhile is lost */
	uint32_t outside_why;
	uint64_t under;            /* of who crashed: of its stack; sp is on one of ours then (guardstack.h) */
	uint64_t stack_hi;         /* of the thread's stack; 0: not known */
	uint64_t tp;               /* its thread pointer */
	uint64_t pending, pending_end; /* the event before which it stands, or 0; and where the recording ended */
	uint32_t *wait;            /* WAITS: the futex */
	uint64_t handle, stack_lo; /* stack_lo: 0: not known, or the program's own memory */
	uint32_t *word;            /* that the kernel clears at its end, for joiners; NULL: not known, its end is not followed */
	uint32_t doing;            /* RS_GUARD_CREATES … */
	uint32_t young;            /* its first steps are glibc's */
	uint32_t gave_up;          /* its rseq area, where something else may lie */
	char *end_stack;
	struct { uint64_t sp, pending; uint32_t *wait; uint32_t state, doing; } kept, fin; /* of the checkpoint, and of the recording's end */
	struct rs_guard_polled polled; /* where the recording ended: guard.h */
	uint32_t ready, bytes_ready; /* so many events, and bytes, have their pages present */
	struct rs_arena_use use, bytes_use; /* of the two, over several epochs */
	uint32_t reads;            /* guardsys.c */
	uint32_t vdso_number;      /* likewise: it is in a function of the vdso that was called for this call, with the stack pointer vdso_sp; 0: it is not */
	uint64_t vdso_sp;
	uint32_t looked;           /* the world's `round` when a wait of ours ended last */
	uint64_t half;             /* where the frame of a handler lies that the kernel began within an act of the thread's; 0: there is none (guardsignal.h) */
	uint64_t stood_ns;         /* how long it has stood at ends of epochs */
	uint32_t cancelled;        /* pthread_cancel was called for it: its waits look whether that counts */
	uint32_t *cancel_wait;     /* in one of them: the word that is changed then */
	uint64_t alt_lo, alt_size; /* the program's alternate stack (guardstack.h); size 0: it has none */
	char *bytes;
	uint32_t waits;            /* guardwant.h: how many waits it has begun of which it can tell */
	uint32_t may_tell, tell;   /* it is in that one; 0: in none. The coordinator asks it to */
	uint32_t wants;            /* how many waits it has told of */
	uint64_t told_sp;          /* the program's stack pointer of the one that it has told of and that is not over; 0: there is none */
	uint32_t cut, cut_bytes;   /* 1 + the events, and bytes, that are followed where the epoch is executed again up to a fault: what the thread did then is not (guardfault.h). 0: all are */
	struct rs_guard_event cut_last; /* the last of them: more of its run may come */
	uint32_t found_another;    /* a wait of its for a word said EAGAIN */
	uint64_t changes;          /* between the two hooks of a word (guardfutex.c): which; else 0 */
	struct rs_guard_object *changes_object; /* its object, which the thread has; NULL: it has not, as in a re-execution */
	uint32_t changes_info, changes_found;
	uint32_t queues, queues_look; /* how many words of queues it has come to in this epoch; when there are so many it looks what that costs */
	uint32_t queue_left;       /* what the last event of its, if that is one of those, has left there */
	struct { uint32_t at, n, next, value[RS_GUARD_HELD]; } held; /* REPLAY: what the word of the thread's next event, at - 1, held between its last one and this, and how much of that it was shown: guardfutex.c */
	struct { uint64_t sum, since_ns, last_ns; } strays; /* rs_guard_strays: how far all were, since when, and when it last asked */
	struct { uint64_t from, took, again; } cpu; /* ns of the processor's time: what it had had when the epoch began (0: it was not born), had in it, and had had when the re-execution began */
} __attribute__((aligned(64)));
static inline bool rs_guard_is_spare(const struct rs_guard_log *t) { return !t->event; }

/* The calling thread's log; NULL: there is none (guard is off, a vfork child, the coordinator, or there are too many threads). */
struct rs_guard_log *rs_guard_self(void) RS_HIDDEN;
/* Of a thread that has none: something in its place, by which it waits, is waited for and wakes as all others do (a wait of glibc's own wakes, and is woken by, nobody who waits here). It has no events: while there is such a thread each
 * epoch is lost. NULL: a forked child, where all is native; or there are tens of thousands of threads. */
struct rs_guard_log *rs_guard_spare(void) RS_HIDDEN;

/* --- events ------------------------------------------------------------------------------------------------------------ */

/* Before the act. False: RECORD (perhaps after an end of epoch): do it. True: REPLAY, it is this event's turn, and *was is what was recorded: the act is to be done only if the result says that it was done then; or there is no
 * such event any more (was->what is 0), as the re-execution diverged: do it. was may be NULL. */
bool rs_guard_before(struct rs_guard_log *t, uintptr_t object, unsigned kind, struct rs_guard_event *was) RS_HIDDEN; /* of a CHANGE, or a QUEUE, also false, with was->ticket RS_GUARD_UNORDERED: it stood, or a handler ran: look again what comes next */
/* After the act, or in place of one that failed. ordered: takes a ticket of the object (while it is held, or before what lets others go on). REPLAY: compares the result, and lets the next go on. */
void rs_guard_after(struct rs_guard_log *t, uintptr_t object, unsigned kind, int32_t result, bool ordered) RS_HIDDEN;
/* Likewise, but no stop comes until the thread says so: its act goes on (t->inner is still RS_GUARD_INNER). Not a spare's. */
void rs_guard_after_still(struct rs_guard_log *t, uintptr_t object, unsigned kind, int32_t result, bool ordered) RS_HIDDEN;

/* The thread with this thread pointer is cancelled, the kernel and glibc know: a wait of ours that it is in, and that is a cancellation point, ends. */
void rs_guard_cancel(uint64_t tp) RS_HIDDEN;

/* --- calls ---------------------------------------------------------------------------------------------------------------- */

/* RECORD: appends a call's result, and returns room for so many bytes behind it; NULL: the epoch is lost, perhaps now, as the log is full. */
void *rs_guard_call_put(struct rs_guard_log *t, uint16_t number, int64_t result, uint32_t bytes) RS_HIDDEN;
/* REPLAY: the thread's next event, which must be this call: its bytes (never NULL; valid until the epoch ends). NULL: there is none (rs_guard_replay_end), or it is another (it is noted that the re-execution diverged). */
const void *rs_guard_call_take(struct rs_guard_log *t, uint16_t number, int64_t *result, uint32_t *bytes) RS_HIDDEN;
/* The same of a clock. False: the thread's next event is none. */
bool rs_guard_clock_take(struct rs_guard_log *t, uint64_t what, uint64_t *value) RS_HIDDEN;
/* Parks the thread until the re-execution, or the end of the epoch, is over. Look at the mode again. number: the call before which it stands. */
void rs_guard_replay_end(struct rs_guard_log *t, uint16_t number) RS_HIDDEN;
/* Before a call is made, in RECORD: waits out an end of epoch that is asked for. may_wait: the call does nothing before it returns (waits): the epoch may end while the thread is in it. Then rs_guard_call_over behind it: did it? */
void rs_guard_call_begin(struct rs_guard_log *t, uint16_t number, bool may_wait) RS_HIDDEN;
bool rs_guard_call_over(struct rs_guard_log *t) RS_HIDDEN;

/* The order of calls that are made again, where it is theirs and not an event's: of an object that is no address. RECORD: its next ticket: taken before what makes room for others, and after what takes room. */
uint32_t rs_guard_ticket(uintptr_t object) RS_HIDDEN;
/* REPLAY: waits until all with lower tickets are over. False: that does not come. next: this one is over. */
bool rs_guard_turn(struct rs_guard_log *t, uintptr_t object, uint32_t ticket) RS_HIDDEN;
void rs_guard_next_turn(uintptr_t object, uint32_t ticket) RS_HIDDEN;
/* RECORD: how many tickets the object has given. REPLAY: waits until so many are over. False: that does not come. */
uint32_t rs_guard_tickets(uintptr_t object) RS_HIDDEN;
bool rs_guard_behind(struct rs_guard_log *t, uintptr_t object, uint32_t tickets) RS_HIDDEN;

/* --- verdicts --------------------------------------------------------------------------------------------------------------- */

enum rs_guard_why {
	RS_GUARD_IDENTICAL, RS_GUARD_EVENT /* another event than recorded */, RS_GUARD_RESULT, RS_GUARD_MORE /* it went on beyond its log's end */, RS_GUARD_STALLED /* all wait for each other, or nobody comes to the end */,
	RS_GUARD_MEMORY, RS_GUARD_MAP, RS_GUARD_CALL_NUMBER, RS_GUARD_CALL_ARGUMENT, RS_GUARD_CALL_RESULT, RS_GUARD_CALL_BYTES,
	RS_GUARD_STACK /* nothing but words of stacks: variables, or what calls that are over have left there */, RS_GUARD_FAULT /* it crashed, and the recording did not */
};
/* The first difference counts. The thread should go on to its next event, where it stops. */
void rs_guard_diverged(struct rs_guard_log *t, uint32_t why, uint64_t was, uint64_t is) RS_HIDDEN;
/* rs_guard_lost, rs_guard_out and _in: agent.h. */

/* --- ends of epochs (guardepoch.c), in a session ------------------------------------------------------------------------------ */

/* On a thread of the program, outside of events: the epoch ends here for it, is executed again, and another one begins. enum rs_guard_why; or a negative errno: it was not executed again: -EBUSY: not all threads came to an event in
 * time; -ENOTSUP: it is lost; -ENOSYS: guard is off. In a re-execution it does not return. */
long rs_guard_epoch_again(void) RS_HIDDEN;
/* Likewise, in a handler of what the thread has sent itself by this call, of whose end the log has nothing yet: a re-execution ends before it is made. */
long rs_guard_epoch_again_before(unsigned number) RS_HIDDEN;
/* From now on no stop begins until rs_guard_unhold; none is under way. */
void rs_guard_hold(void) RS_HIDDEN;
void rs_guard_unhold(void) RS_HIDDEN;
/* rs_guard_out before this event. */
void rs_guard_out_before(uint32_t why, uintptr_t object, unsigned kind) RS_HIDDEN;
/* The thread's log is nearly full: the epoch ends before this event. True: look again. */
bool rs_guard_full(struct rs_guard_log *t, uintptr_t object, unsigned kind) RS_HIDDEN;
/* The epoch ends before this event. */
void rs_guard_epoch_end(struct rs_guard_log *t, uintptr_t object, unsigned kind) RS_HIDDEN;
/* Likewise, if it is not lost already and its end does not cost too much. False: it goes on. */
bool rs_guard_end_before(struct rs_guard_log *t, uintptr_t object, unsigned kind) RS_HIDDEN;
/* It ends when that does not cost too much; who asks does not wait. */
void rs_guard_poke_soon(void) RS_HIDDEN;
/* In the constructor, before there are other threads, with rs_config.guard: begins the first epoch, or sees to it that the process's second thread does. */
void rs_guard_session(void) RS_HIDDEN;

/* --- for guardsync.c ---------------------------------------------------------------------------------------------------------- */

/* What belongs to an object by its address, in private memory: it goes back with the threads. Never given up. */
struct rs_guard_slot {
	uint32_t seq;              /* futex of those who wait for the object */
	uint32_t waiters;          /* not 0: somebody may wait. Of a semaphore, a barrier: how many */
	uint32_t lock;             /* of what follows, for a few instructions; of what is made once: until its own word says that somebody makes it; of an rwlock: writers that want it */
	uint16_t head, tail;       /* a condition's queue: 1 + index of a log. head: who makes it, the same */
};
/* An object's order, in the arena: a line each, as neighbours may be other threads'. */
struct rs_guard_object { uint64_t key; uint32_t ticket, turn, sleepers, waits /* its slot may have waiters; set behind them */, busy /* of a word: a thread changes it */; } __attribute__((aligned(64)));
enum { RS_GUARD_LOGS = 256, RS_GUARD_OBJECTS = 1 << 15, RS_GUARD_EVENTS = 1 << 19, RS_GUARD_NEARLY_EVENTS = RS_GUARD_EVENTS / 8 * 7, RS_GUARD_BYTES = 1 << 22, RS_GUARD_NEARLY_BYTES = RS_GUARD_BYTES / 8 * 7, RS_GUARD_RUN = 255 /* taken once more, at most */ };
/* What quick acts look at, set once. objects: as slots. */
extern struct rs_guard_view { struct rs_guard_world *world; struct rs_guard_object *objects; struct rs_guard_slot *slots; } rs_guard_view RS_HIDDEN;
extern __thread struct rs_guard_log *rs_guard_mine __attribute__((tls_model("initial-exec"))) RS_HIDDEN; /* or NULL: ask rs_guard_self */
/* Where a key's object is looked for first. */
static inline uint32_t rs_guard_place(uint64_t key) { return (uint32_t)(key * 0x9e3779b97f4a7c15ull >> 49) & (RS_GUARD_OBJECTS - 1); }
/* The object of that key, if there is one. Keys stay while an epoch lasts. */
static inline struct rs_guard_object *rs_guard_object(uint64_t key)
{
	struct rs_guard_object *o = &rs_guard_view.objects[rs_guard_place(key)];
	for (uint64_t k = __atomic_load_n(&o->key, __ATOMIC_RELAXED); RS_UNLIKELY(k != key); k = __atomic_load_n(&o->key, __ATOMIC_RELAXED)) {
		if (k == 0)
			return NULL;
		o = &rs_guard_view.objects[(o - rs_guard_view.objects + 1) & (RS_GUARD_OBJECTS - 1)];
	}
	if (!o)
		__builtin_unreachable(); /* whoever asks looks no second time */
	return o;
}
/* Who lets go looks at `waits` behind a locked instruction, and then at the slot. */
static inline void rs_guard_will_wait(const struct rs_guard_slot *s) { __atomic_store_n(&rs_guard_view.objects[s - rs_guard_view.slots].waits, 1, __ATOMIC_SEQ_CST); }
/* The object of a lock of libc's own. Streams come and go, and keys stay: so many locks have one, no address, and its tickets are raised by locked instructions. Who holds one lock has a lower ticket than who takes it then,
 * whatever others of the object do in between. */
enum { RS_GUARD_LIBC_OBJECTS = 1 << 11 };
static inline uint64_t rs_guard_libc_key(uint64_t word) { return 1ull << 55 | (word * 0x9e3779b97f4a7c15ull >> 32 & (RS_GUARD_LIBC_OBJECTS - 1)); }
/* Likewise of words that programs wait for: they lie in many small objects that come and go. */
enum { RS_GUARD_FUTEX_OBJECTS = 1 << 11 };
/* An event's object has, above the word's address, some bits of the instruction's. */
#define RS_GUARD_ADDRESS(object) ((object) & 0x7fffffffffffull)
static inline uint64_t rs_guard_futex_key(uint64_t object)
{
	const uint64_t word = RS_GUARD_ADDRESS(object);
	return 3ull << 54 | (word * 0x9e3779b97f4a7c15ull >> 32 & (RS_GUARD_FUTEX_OBJECTS - 1));
}
/* Of a thread's log, beside the slots. */
struct rs_guard_node { uint32_t signalled /* futex: RS_GUARD_SIGNALLED … */; uint16_t next; };
enum { RS_GUARD_SIGNALLED = 1, RS_GUARD_TO_LOOK /* it was cancelled */ };
/* How often an event was done once more, in a run: each gave 0. */
static inline uint32_t rs_guard_more(const struct rs_guard_event *e)
{
	unsigned kind = (unsigned)(e->what >> 56);
	return (kind == RS_GUARD_MUTEX || kind == RS_GUARD_LIBC || kind == RS_GUARD_ALONE || kind == RS_GUARD_CHANGE_RUN || kind == RS_GUARD_QUEUE_RUN) && e->result < 0 ? (uint32_t)-e->result : 0;
}
/* Such an event says what a thread found; whether it looked may depend on what it had loaded before, in no order. In a re-execution it may be missing. */
static inline bool rs_guard_is_chance(const struct rs_guard_event *e) { return e->what >> 56 == RS_GUARD_CHANGE_NOT || e->what >> 56 == RS_GUARD_WOKE; }
/* REPLAY: where the thread's next event is that is not by chance; `end`: there is none. */
static inline uint32_t rs_guard_next_at(const struct rs_guard_log *t)
{
	uint32_t at = t->at;
	while (at < t->end && rs_guard_is_chance(&t->event[at]))
		at++;
	return at;
}
/* REPLAY: the thread waits for what others are to do to a word, as it has come where the recording did not, or not yet. True: they will not, for as far as is seen; it has gone another way. */
bool rs_guard_strays(struct rs_guard_log *t) RS_HIDDEN;
/* REPLAY: the events by chance that come next are passed over, up to that one. */
void rs_guard_pass_over(struct rs_guard_log *t, uint32_t at) RS_HIDDEN;
/* NULL: none yet (or with make: no room; the epoch is lost). */
struct rs_guard_slot *rs_guard_slot(uintptr_t object, bool make) RS_HIDDEN;
struct rs_guard_node *rs_guard_node(uint32_t index) RS_HIDDEN;
/* A wait of ours on *word while it is value: 0, or a negative errno. abstime of that clock (as clock_gettime's), or NULL. */
long rs_guard_sleep(struct rs_guard_log *t, uint32_t *word, uint32_t value, int clock, const struct timespec *abstime) RS_HIDDEN;
/* Likewise, of guardtry.c, by CLOCK_MONOTONIC: it is nothing that the thread does. */
long rs_guard_sleep_in_try(struct rs_guard_log *t, uint32_t *word, uint32_t value, const struct timespec *abstime) RS_HIDDEN;
/* Likewise, in a call of its by which it waits for a word; shared: which did not say that the word is of this process alone. */
void rs_guard_sleep_for_word(struct rs_guard_log *t, uint32_t *word, uint32_t value, bool shared, const struct timespec *abstime) RS_HIDDEN;
/* A wait that has no event to come: if the epoch ends, or the log is at its end, parks the thread as before this event, until that is over; if a handler is to run, runs it; true: it did. */
bool rs_guard_pause(struct rs_guard_log *t, uintptr_t object, unsigned kind) RS_HIDDEN;
/* REPLAY: what the thread's next event is; 0: none, or RECORD. */
uint64_t rs_guard_next(const struct rs_guard_log *t) RS_HIDDEN;

/* Opens what is between before and after without standing at an end of epoch; false: in a re-execution. */
static inline bool rs_guard_begin_act(struct rs_guard_log *t)
{
	__atomic_store_n(&t->inner, RS_GUARD_INNER, __ATOMIC_RELEASE);
	RS_BARRIER();
	if (rs_guard_mode() != RS_GUARD_REPLAY || rs_guard_is_spare(t))
		return true;
	t->inner = 0;
	return false;
}
static inline void rs_guard_no_act(struct rs_guard_log *t) { __atomic_store_n(&t->inner, 0, __ATOMIC_RELEASE); }

/* Coordinator, world stopped at the end of a re-execution. What differs at an address says no other thing: a lock of libc's, or of the program's making, that is held, for which somebody waits, or did. */
bool rs_guard_same_lock(uint64_t at, uint32_t was, uint32_t is) RS_HIDDEN;

/* Likewise: errno of a thread that a wait for a word has given EAGAIN, and the re-execution 0: whether the word was another one by then is chance. */
bool rs_guard_same_errno(uint64_t at, uint32_t was) RS_HIDDEN;

/* Is what changes words to be left alone by this thread (guardfutex.c)? Another thread is about to be made by it; at a checkpoint; behind a rollback to it, or behind going back to the end. */
extern __thread uint32_t rs_guard_words_alone __attribute__((tls_model("initial-exec"))) RS_HIDDEN;
void rs_guard_words_begin(void) RS_HIDDEN;
/* A handler begins: if that is between the two hooks of a word, others need not wait for its end. The epoch is lost, but for a fault. */
void rs_guard_word_left(struct rs_guard_log *t) RS_HIDDEN;
/* Not 0: what is done to words of queues is left alone by this thread: the process has one (RS_GUARD_QUEUES_ONE), or to order them costs too much. */
extern __thread uint32_t rs_guard_queues_alone __attribute__((tls_model("initial-exec"))) RS_HIDDEN;
enum { RS_GUARD_QUEUES_ONE = 1, RS_GUARD_QUEUES_PASSED };
/* World stopped, behind an epoch, before its threads' processor time is looked at anew: is their order recorded in the next one? lost: that cannot be executed again. */
void rs_guard_queues_new(bool lost) RS_HIDDEN;
/* World stopped: all threads that there are do as is decided; a thread that is new does. */
void rs_guard_queues_tell(void) RS_HIDDEN;
void rs_guard_queues_mine(void) RS_HIDDEN;
void rs_guard_words_keep(bool end) RS_HIDDEN;
void rs_guard_words_back(bool end) RS_HIDDEN;

/* Waits at the gate, for a while. Where nobody would open it, as the coordinator is gone (the program has written over its memory), no epochs are recorded any more. */
void rs_guard_stand_by(uint32_t gate) RS_HIDDEN;
/* Stands before the end of an epoch that the thread itself asked for. */
void rs_guard_stand(struct rs_guard_log *t, uintptr_t object, unsigned kind, uint32_t gate) RS_HIDDEN;
/* Likewise, until the gate opens or that holds, of which who changes that word (a futex) lets it know at once; the others are not told. */
void rs_guard_stand_unless(struct rs_guard_log *t, uintptr_t object, unsigned kind, uint32_t gate, bool (*goes_on)(const struct rs_guard_log *t), uint32_t *word) RS_HIDDEN;

/* --- for the coordinator (guardagain.c) ------------------------------------------------------------------------------------------ */

enum { RS_GUARD_SKIPS = 4096 };
/* The epoch's first fault of which a handler of the program's was told. */
struct rs_guard_faulted {
	uint32_t who;              /* 1 + the index of its thread's log; 0: there was none */
	uint32_t asks;             /* the process dies of it, and its thread is about to ask for a re-execution */
	uint32_t dies;             /* of a fault for which the program has no handler: as who */
	uint32_t over;             /* the handler has returned; so many events and one there were then */
	int32_t sig;
	uint64_t address, since_ns, over_ns;
	uint64_t frame, context;   /* below the one the stack was not used; the handler's ucontext, 0: it is not called yet */
	uint64_t gregs[REG_EFL + 1];
};
struct rs_guard_world {
	uint32_t mode, ending;     /* ending: every thread stops at its next event. The first two: rs_guard_plainly */
	uint32_t gate;             /* futex: changed when those who stand may go on */
	uint32_t ended;            /* futex: raised when somebody comes to a stand */
	uint32_t logs, spares;     /* so many were ever used */
	uint32_t lost;             /* RS_GUARD_LOST_… */
	uint32_t soon;             /* the coordinator knows that it is to end it soon */
	uint32_t objects;
	bool session, every, queues_always; /* by wire's Config.Guard */
	uint32_t queues_passed;    /* for so many epochs more what is done to words of queues is in no order */
	uint32_t queues_used;      /* so many of what is done to them did not count, as a process's first */
	uint32_t queues_again;     /* for so many the next time */
	uint32_t holding, stopping; /* a thread is about to become another program, which a signal of ours would kill: no stop begins; one has begun */
	uint64_t begun_ms;         /* the epoch */
	uint64_t begun_ticks;      /* the same by rdtsc */
	uint64_t soonest_ns;       /* before this time it does not end, but where it must */
	bool unordered, swap;      /* for tests: turns are not waited for; two tickets are exchanged */
	/* The first difference. */
	uint32_t why, tid, event, found;
	uint64_t was, is, at;
	struct { uint64_t tid, above, before; } stack; /* RS_GUARD_STACK: whose, how far above its stack pointer, and before which event it stands; else 0 */
	uint64_t *skip;            /* guardagain.c: room for RS_GUARD_SKIPS pairs */
	uint64_t agent[2];         /* [lo,hi): our own data */
	uint64_t tls[2];           /* [lo,hi) from a thread's pointer: our own thread-local variables */
	uint64_t loader[2];        /* [lo,hi): what the dynamic linker writes to of its own file: it counts look-ups there (_dl_num_relocations) without a lock, so that threads that bind at once lose some */
	uint32_t slower;           /* 0, or how many times the usual time threads are given: they are looked at */
	uint32_t round;            /* raised by who wakes all: who has not looked since has not been given a processor */
	uint32_t verdicts;         /* how many re-executions there were */
	int32_t result;            /* of the last one asked for */
	uint32_t tries;            /* how often the last epoch was executed again */
	uint32_t answers;          /* how many who asked for a re-execution were answered: verdicts counts other ends, too */
	uint32_t crashing;         /* threads between their crash and its answer: nothing but who asks for a re-execution ends their epoch */
	bool answering;            /* coordinator: this end was asked for so */
	struct rs_guard_faulted fault;
	uint32_t to_fault;         /* REPLAY: the epoch is executed again up to that */
	struct { uint32_t why, tid, event, lost, threads, events; uint64_t was, is, at; } last;
};
struct rs_guard_world *rs_guard_world(void) RS_HIDDEN;
/* A recording, and no end of it is asked for. */
static inline bool rs_guard_plainly(const struct rs_guard_world *w)
{
	typedef uint64_t both __attribute__((may_alias));
	return __atomic_load_n((const both *)w, __ATOMIC_ACQUIRE) == RS_GUARD_RECORD;
}
/* The epoch will not be executed again: nobody reads what is written down of it. */
static inline bool rs_guard_is_lost(const struct rs_guard_world *w) { return __atomic_load_n(&w->lost, __ATOMIC_RELAXED) != 0; }
/* It can be executed again up to a fault, if the process dies of that, and else is lost: guardfault.h. */
static inline bool rs_guard_is_faulted(const struct rs_guard_world *w) { return __atomic_load_n(&w->fault.who, __ATOMIC_ACQUIRE) && !rs_guard_is_lost(w); }
/* A crash is about to ask, or may be: an end that came first would leave it an epoch without it. */
static inline bool rs_guard_put_off(const struct rs_guard_world *w) { return !w->answering && w->mode == RS_GUARD_RECORD && (__atomic_load_n(&w->crashing, __ATOMIC_SEQ_CST) || rs_guard_is_faulted(w)); }
struct rs_guard_log *rs_guard_log(uint32_t index) RS_HIDDEN;
/* Before the coordinator begins. Negative errno. */
long rs_guard_log_begin(void) RS_HIDDEN;
/* guardagain.c, by the coordinator: ends the epoch, re-executes it, compares, lets all go on from where the recording ended, and begins another epoch. 0 or the enum rs_guard_why, or a negative errno: it was not re-executed; -EAGAIN: nor has it ended (rs_guard_put_off). */
long rs_guard_reexecute(void) RS_HIDDEN;
/* guard.c, before anybody goes on: what came of an end (as rs_guard_reexecute's result) is counted. */
void rs_guard_told(long r) RS_HIDDEN;
/* Coordinator: those who stand may go on. */
void rs_guard_let_go(void) RS_HIDDEN;
/* World stopped: is no thread in the middle of an event, or about to make a call that was looked at? */
bool rs_guard_between(void) RS_HIDDEN;
/* The registers of a thread that has stopped; NULL: it has ended, or is not born, and what it had as a frame is memory that may be gone. */
struct rs_world_thread;
const greg_t *rs_guard_stopped_at(const struct rs_world_thread *w) RS_HIDDEN;
/* Behind that, all running again: until the thread that was has come further, or some milliseconds. Who has just been let go has often not run yet when the next stop comes. */
void rs_guard_wait_between(void) RS_HIDDEN;
/* guard.c, world stopped. */
long rs_guard_do_checkpoint(void) RS_HIDDEN;
long rs_guard_do_rollback(void) RS_HIDDEN;
/* World stopped. A new epoch: logs are empty, tickets 0. */
void rs_guard_log_new(void) RS_HIDDEN;
/* World stopped: its thread is gone. */
void rs_guard_log_drop(struct rs_guard_log *t) RS_HIDDEN;
/* World stopped: what the logs' threads do, as of the recording's end; and that again. */
void rs_guard_log_keep_end(void) RS_HIDDEN;
void rs_guard_log_forward(void) RS_HIDDEN;
/* World stopped, after a rollback. Logs are at their beginning, and end where the recording did; mode REPLAY. */
void rs_guard_log_back(void) RS_HIDDEN;
/* Those in waits of ours look again. */
void rs_guard_kick(void) RS_HIDDEN;
/* Private memory that is ours alone: [lo,hi). It goes back, and is not compared. */
void rs_guard_log_own(uintptr_t *lo, uintptr_t *hi) RS_HIDDEN;
/* For tests: exchanges two neighbouring tickets of a mutex that different threads have; false: there are none in the logs' second halves. */
bool rs_guard_log_swap(void) RS_HIDDEN;
#endif
