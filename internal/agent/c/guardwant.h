/* guardwant.h: what threads wait for while `guard` keeps a log, told when a wait has lasted for a second or so; and wrong uses of what has no list of who holds it. guardwant.c. */
#ifndef RS_GUARDWANT_H
#define RS_GUARDWANT_H
#include "guardlog.h"

/* A wait of guard's for an object, in the frame of who waits. */
struct rs_guard_want {
	uintptr_t object;
	uint32_t kind, mode;       /* RS_OBJECT_…, 0: it is told to nobody; RS_MODE_… */
	uintptr_t sp;              /* the program's where it called what waits: RS_SITE_SP */
	const uint32_t *word;      /* on which it sleeps */
	uint32_t number;           /* of those of its thread; 0: it has not slept yet */
	uint32_t slices;           /* of one that ends by itself and is begun again: how often that was */
	uint32_t owner, owner_wants; /* told: whose it was then, and the owner's `wants` */
	bool told;
	struct rs_wait before;
};
/* rs_guard_sleep. One without a timeout may come back to tell of itself: the caller looks again. */
long rs_guard_want_sleep(struct rs_guard_log *t, struct rs_guard_want *w, uint32_t *word, uint32_t value, int clock, const struct timespec *abstime) RS_HIDDEN;
/* Likewise a piece of a wait that is begun again and again. */
void rs_guard_want_slice(struct rs_guard_log *t, struct rs_guard_want *w, uint32_t *word, uint32_t value, const struct timespec *until) RS_HIDDEN;
/* Where it ends, whether it was told or not. result 0: it got what it wanted. */
void rs_guard_want_over(struct rs_guard_log *t, struct rs_guard_want *w, int result) RS_HIDDEN;
static inline void rs_guard_want_end(struct rs_guard_log *t, struct rs_guard_want *w, int result)
{
	if (w->number || w->told)
		rs_guard_want_over(t, w, result);
}
/* The coordinator, every half second or so, between all else: has those tell whose waits have lasted. */
void rs_guard_want_look(void) RS_HIDDEN;

/* tid is that of a thread of this process which keeps a log. */
bool rs_guard_is_thread(uint32_t tid) RS_HIDDEN;
/* Before an unlock that the mutex's, the rwlock's own words may contradict; before a wait with a mutex. sp: RS_SITE_SP. */
void rs_guard_check_unlock(const pthread_mutex_t *m, uintptr_t sp) RS_HIDDEN;
void rs_guard_check_rwlock_unlock(const pthread_rwlock_t *rw, uintptr_t sp) RS_HIDDEN;
/* A mutex that is locked again, or a semaphore that is posted, has no room for that in its count. */
void rs_guard_full_count(uintptr_t object, unsigned kind, uint64_t count, uintptr_t sp) RS_HIDDEN;
void rs_guard_check_wait(const pthread_cond_t *c, const pthread_mutex_t *m, uintptr_t sp) RS_HIDDEN;
#endif
