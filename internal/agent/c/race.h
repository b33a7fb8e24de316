/* race.h: the race detector that lives in the agent: FastTrack (Flanagan and Freund, PLDI'09) by byte. internal/race is its specification; docs/decisions.md, 33, says
 * where the two differ, and that a live detector finds fewer races, never others.
 *
 * All functions may be called in signal handlers, allocate by rs_os_map alone, use general registers alone (so do the files behind them), and never wait for
 * long: where a lock cannot be had, or memory, what was done up to then is taken for ordered, which loses races and makes none.
 *
 * What is told when: a release, a free, a write, an atomic instruction before it is made; an acquire, an allocation, a read when it has been made; an atomic instruction
 * once more when it has been made (RS_RACE_DONE). So whoever sees what another did comes later. */
#ifndef RS_RACE_H
#define RS_RACE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bits of an access's kind, as in the event `access`. FENCE stands alone: addr and size mean nothing; it makes a plain store that the thread told just before it one of an atomic.
 * FENCED: a plain store that a fence follows at once, if that is known beforehand. What is found has instead OBJECT: a use of an object of synchronisation, or (with WRITE) its initialisation or destruction. */
enum { RS_RACE_READ = 1, RS_RACE_WRITE = 2, RS_RACE_ATOMIC = 4, RS_RACE_FENCE = 8, RS_RACE_REPEATED = 16, RS_RACE_DONE = 32, RS_RACE_FENCED = 64, RS_RACE_OBJECT = 64, RS_RACE_CALLED = 128,
	/* With ATOMIC, where the program's own order is known (tsan.c): it acquires nothing, it releases nothing. */
	RS_RACE_NO_TAKE = 256, RS_RACE_NO_GIVE = 512 };

struct rs_race_thread {
	uint64_t epoch;            /* slot<<44 | time. Others may raise it, so it is read before memory is looked at */
	uint32_t number;
	/* more behind it: race_core.h */
};

struct rs_race_found;
struct rs_race_config {
	uint32_t max_pages;        /* pages of the program whose history is kept; 0: 1<<16, which is about 1.1 GB at most */
	/* Called by the thread of the later access before a race of two accesses is noted that was not noted before, perhaps twice; may be NULL. False: it is none. */
	bool (*look)(const struct rs_race_found *f);
	/* Called by a thread that leaves the detector after rs_race_put_off; may be NULL if that is never called. */
	void (*due)(void);
	/* Called outside of the detector by a thread each time that it alone has accessed a page often enough, of which no byte is of an atomic or of a freed block; may be NULL. */
	void (*alone)(uint32_t number, uint64_t page);
};

/* To be called once, before anything else; false: no memory. */
bool rs_race_begin(const struct rs_race_config *c);
/* The thread of that number. One that is not known yet begins now, after all that anybody did. NULL: it has ended, or there are too many. What it returns stays valid as long as the thread lives. */
struct rs_race_thread *rs_race_thread(uint32_t number);
/* What a thread does not tell of its own frames it tells from lowest on once entries are those, and told is set, which recipes look at first (recipe.TellGate); another thread's access to its stack sees to all three. */
struct rs_race_frames { const uintptr_t *entries; uint64_t lowest, told; };
void rs_race_stack(struct rs_race_thread *t, uintptr_t lo, uintptr_t hi, struct rs_race_frames *frames, const uintptr_t *told);
/* Takes an event as it is emitted: w is the record with its id in w[0]. To be called for each event of every thread; of those that order nothing it makes nothing. */
void rs_race_event(uint32_t number, const uint64_t *w);
/* A thread of which modules do not say that all it did so far comes before what others do from then on: what their initialisers do is told. 0: none. */
extern uint32_t rs_race_loads;
/* The thread gives, or takes, by an object of guard's: what is done by then comes before who takes it. shared: as a lock for reading. */
void rs_race_order(uint32_t number, uint64_t object, bool gives, bool takes, bool shared);
/* A block that lives and was there before there was a detector. */
void rs_race_lives(uint32_t number, uintptr_t addr, uint64_t size, uint32_t stack);
/* One access. stack: an id, 0 if none is known. A thread with a handler inside tells the handler's as its own. */
void rs_race_access(struct rs_race_thread *t, uintptr_t addr, uint64_t size, unsigned kind, uintptr_t pc, uint32_t stack);
/* A fence of C's: acquires what the thread's atomic reads with NO_TAKE found, and has its later atomic writes with NO_GIVE release what it did up to here. */
void rs_race_fence(struct rs_race_thread *t, bool acquires, bool releases);
/* Of 8 bytes those of which the detector learns nothing from a plain access of the thread: it was told as much of them in this time, and nobody else did anything that counts there since. mov: an
 * aligned write alone, of 1, 2, 4, 8 bytes; write: another one. False: it could not be told. */
struct rs_race_masks { uint8_t read, write, mov; };
bool rs_race_masks(const struct rs_race_thread *t, uint64_t cell, struct rs_race_masks *out);
/* malloc_usable_size has told the thread that its block has so many bytes. */
void rs_race_usable(struct rs_race_thread *t, uintptr_t addr, uint64_t size);
/* Where on the stack the thread is in the detector; 0: it is not. If that frame is gone (a handler left it by a jump), rs_race_left says so; until then all it tells is taken for ordered. */
uintptr_t rs_race_inside(const struct rs_race_thread *t);
void rs_race_left(struct rs_race_thread *t);
/* A handler came while the thread, the caller, is inside: `due` is to be called when it leaves. */
void rs_race_put_off(struct rs_race_thread *t);
/* A child process is about to be made: from here on what comes by channels may come from this process's threads. */
void rs_race_fork_begins(void);
/* In the forked child, by its one thread, before it does anything else: nothing of what others did is kept. */
void rs_race_after_fork(uint32_t number);
/* The process ends: what was kept back is decided. */
void rs_race_end(void);

/* The event `race`, but for its header. */
struct rs_race_found {
	uint8_t rule, kind, kind2;
	uint32_t by, by2, stack, stack2, count;
	uint64_t addr, size, pc, addr2, size2, pc2;
};
/* librarycache.c: it is of two accesses to what the C++ library keeps for itself. */
bool rs_library_cache(const struct rs_race_found *f) __attribute__((visibility("hidden")));
/* Before anybody accesses anything: a block that was freed already, and is not handed out again yet. */
void rs_race_was_freed(uint64_t addr, uint64_t size, uint32_t stack, uint32_t thread) __attribute__((visibility("hidden")));
/* From now on blocks may be handed out unseen: what was freed is not known to be free. */
void rs_race_blocks_unseen(void) __attribute__((visibility("hidden")));
/* All that anybody did up to here comes before all that anybody does from here on. */
void rs_race_amnesty(void) __attribute__((visibility("hidden")));
/* Gives the next race that is decided, once; and before that, once, one that waits for it (RS_RACE_RULE_PENDING_…). */
bool rs_race_next(struct rs_race_found *out);
/* What was lost, for notes and --stats. */
struct rs_race_counts { uint64_t accesses, evicted_pages, pages, amnesties, unsaid; };
void rs_race_count(struct rs_race_counts *out);
#endif
