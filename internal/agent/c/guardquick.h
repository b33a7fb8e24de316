/* guardquick.h: what programs do with objects of synchronisation while `guard` keeps a log, where nobody waits: without a call, and without anything below the stack pointer but what the function that this is in pushes at its beginning. See guardsync.h.
 *
 * Short is what counts: behind a locked instruction, and behind a branch that was not foreseen, nothing is fetched ahead. */
#ifndef RS_GUARDQUICK_H
#define RS_GUARDQUICK_H
#include "guardlog.h"
#include "mutexquick.h"
#include "rwlockquick.h"
#include "semquick.h"
#include "sync.h"

/* Opens what is between before and after, for an act of a recording that one more event of g's is to be appended for; false: it is another's to do. A forked child's logs are zeros. */
static inline __attribute__((always_inline)) bool rs_guard_begin_quickly(struct rs_guard_log *g)
{
	__atomic_store_n(&g->inner, RS_GUARD_INNER, __ATOMIC_RELEASE);
	RS_BARRIER();
	if (RS_LIKELY(g->at < g->quick))
		return true;
	__atomic_store_n(&g->inner, 0, __ATOMIC_RELEASE);
	return false;
}
static inline void rs_guard_end_quickly(struct rs_guard_log *g)
{
	RS_BARRIER();
	__atomic_store_n(&g->inner, 0, __ATOMIC_RELEASE);
}
static inline void rs_guard_append_quickly(struct rs_guard_log *g, uint64_t what, uint32_t ticket, int32_t result)
{
	typedef uint64_t both __attribute__((may_alias));
	uint32_t at = g->at;
	struct rs_guard_event *e = &g->event[at];
	e->what = what;
	*(both *)&e->ticket = ticket | (uint64_t)(uint32_t)result << 32;
	__atomic_store_n(&g->at, at + 1, __ATOMIC_RELEASE);
}
/* Whoever raises it has the object to itself. */
static inline uint32_t rs_guard_ticket_alone(struct rs_guard_object *o)
{
	uint32_t ticket = __atomic_load_n(&o->ticket, __ATOMIC_RELAXED);
	__atomic_store_n(&o->ticket, ticket + 1, __ATOMIC_RELAXED);
	return ticket;
}
/* Others may have it, too. */
static inline uint32_t rs_guard_ticket_shared(struct rs_guard_object *o) { return __atomic_fetch_add(&o->ticket, 1, __ATOMIC_ACQ_REL); }
/* Behind a locked instruction. */
static inline bool rs_guard_waited_for(const struct rs_guard_object *o) { return RS_UNLIKELY(__atomic_load_n(&o->waits, __ATOMIC_SEQ_CST)); }
/* No address of the program's has a bit where the kind is. */
static inline uint64_t rs_guard_what_of(const void *object, unsigned kind) { return (uintptr_t)object | (uint64_t)kind << 56; }

/* A free mutex in a process that has one thread: nobody else wants it. Such takings have no object and no order, and all that the thread does in a row are one event, whichever they are. */
static inline bool rs_guard_alone(const pthread_mutex_t *m) { return __libc_single_threaded && QUICK(m->__data.__kind) && m->__data.__lock == 0; }

static inline __attribute__((always_inline)) bool rs_guard_takes_alone(struct rs_guard_log *g, pthread_mutex_t *m, int kind)
{
	if (RS_UNLIKELY(!rs_guard_begin_quickly(g)))
		return false;
	bool again = RS_UNLIKELY(kind) && quick_again(m, g->tid), done = again || quick_take_if(m, g->tid, true);
	if (RS_LIKELY(done && !again)) {
		const uint64_t what = rs_guard_what_of(NULL, RS_GUARD_ALONE);
		if (RS_UNLIKELY(QUICK_RECURSIVE(kind)))
			m->__data.__count = 1;
		uint32_t at = g->at;
		struct rs_guard_event *last = &g->event[at] - 1;
		if (last->what == what && at > 0 && last->result > -RS_GUARD_RUN)
			last->result--;
		else
			rs_guard_append_quickly(g, what, RS_GUARD_UNORDERED, 0);
	}
	rs_guard_end_quickly(g);
	return done;
}

static inline __attribute__((always_inline)) bool rs_guard_takes_of_kind(struct rs_guard_log *g, pthread_mutex_t *m, int kind)
{
	struct rs_guard_object *o = rs_guard_object((uintptr_t)m);
	if (RS_UNLIKELY(!o || !rs_guard_begin_quickly(g)))
		return false;
	if (kind && quick_again(m, g->tid)) {
		rs_guard_end_quickly(g);
		return true;
	}
	bool done = quick_take_if(m, g->tid, false);
	if (RS_LIKELY(done)) {
		const uint64_t what = rs_guard_what_of(m, RS_GUARD_MUTEX);
		if (QUICK_RECURSIVE(kind))
			m->__data.__count = 1;
		uint32_t ticket = rs_guard_ticket_alone(o), at = g->at;
		struct rs_guard_event *last = &g->event[at] - 1;
		uint32_t more = (uint32_t)-last->result;
		/* at 0: what lies there is another's. */
		if (last->what == what && at > 0 && more < RS_GUARD_RUN && last->ticket + more + 1 == ticket)
			last->result = -(int32_t)(more + 1);
		else
			rs_guard_append_quickly(g, what, ticket, 0);
	}
	rs_guard_end_quickly(g);
	return done;
}

/* The event that rs_guard_mutex_lock makes of it. */
static inline __attribute__((always_inline)) bool rs_guard_takes_quickly(pthread_mutex_t *m)
{
	struct rs_guard_log *g = rs_guard_mine;
	if (RS_UNLIKELY(!g))
		return false;
	int kind = m->__data.__kind;
	if (RS_LIKELY(!(kind | __libc_single_threaded)))
		return rs_guard_takes_of_kind(g, m, 0);
	if (kind && !QUICK(kind))
		return false;
	return __libc_single_threaded ? rs_guard_takes_alone(g, m, kind) : rs_guard_takes_of_kind(g, m, kind);
}

/* True: it is still held, and there is nothing more to do. */
static inline __attribute__((always_inline)) bool rs_guard_still_held(pthread_mutex_t *m, int kind, uint32_t tid)
{
	if (!kind)
		return false;
	if (quick_back(m, tid))
		return true;
	if (QUICK_RECURSIVE(kind))
		m->__data.__count = 0;
	return false;
}

static inline __attribute__((always_inline)) int rs_guard_gives_of_kind(const struct rs_guard_log *g, pthread_mutex_t *m, int kind)
{
	/* Before the mutex is another's, perhaps gone. One that was taken before there was a log may be no object yet, and become one of somebody's who waits right behind this look. */
	const struct rs_guard_object *o = rs_guard_object((uintptr_t)m);
	if (RS_UNLIKELY(!o))
		return RS_GUARD_NOT_GIVEN;
	if (rs_guard_still_held(m, kind, g->tid))
		return RS_GUARD_GIVEN;
	if (RS_UNLIKELY(quick_let_go_if(m, false)))
		return RS_GUARD_GIVEN_WAKE_ALL;
	return rs_guard_waited_for(o) ? RS_GUARD_GIVEN_WAKE : RS_GUARD_GIVEN;
}

static inline __attribute__((always_inline)) int rs_guard_gives_quickly(pthread_mutex_t *m)
{
	const struct rs_guard_log *g = rs_guard_mine;
	if (RS_UNLIKELY(!g || g->at >= g->quick))
		return RS_GUARD_NOT_GIVEN;
	uint32_t kind = (uint32_t)m->__data.__kind, mine = (uint32_t)m->__data.__owner ^ g->tid;
	if (RS_LIKELY(!(mine | kind | (unsigned char)__libc_single_threaded)))
		return rs_guard_gives_of_kind(g, m, 0);
	if (mine || (kind && !QUICK(kind)))
		return RS_GUARD_NOT_GIVEN;
	if (!__libc_single_threaded)
		return rs_guard_gives_of_kind(g, m, (int)kind);
	if (!rs_guard_still_held(m, (int)kind, g->tid))
		quick_let_go_if(m, true);
	return RS_GUARD_GIVEN;
}

/* --- rwlocks ----------------------------------------------------------------------------------------------------------------------- */

static inline __attribute__((always_inline)) bool rs_guard_rwlock_quickly(pthread_rwlock_t *rw, bool write)
{
	struct rs_guard_log *g = rs_guard_mine;
	if (RS_UNLIKELY(!g || !rs_rwlock_quick || rw->__data.__shared || rw->__data.__flags))
		return false;
	struct rs_guard_object *o = rs_guard_object((uintptr_t)rw);
	if (RS_UNLIKELY(!o || !rs_guard_begin_quickly(g)))
		return false;
	bool done = write ? quick_write(rw, g->tid) : quick_read(rw);
	if (RS_LIKELY(done))
		rs_guard_append_quickly(g, rs_guard_what_of(rw, RS_GUARD_RWLOCK), write ? rs_guard_ticket_alone(o) : rs_guard_ticket_shared(o), 0);
	rs_guard_end_quickly(g);
	return done;
}

static inline __attribute__((always_inline)) int rs_guard_rwlock_back_quickly(pthread_rwlock_t *rw)
{
	const struct rs_guard_log *g = rs_guard_mine;
	if (RS_UNLIKELY(!g || !rs_rwlock_quick || rw->__data.__shared || g->at >= g->quick))
		return RS_GUARD_NOT_GIVEN;
	const struct rs_guard_object *o = rs_guard_object((uintptr_t)rw);
	uint32_t writer = (uint32_t)rw->__data.__cur_writer;
	if (RS_UNLIKELY(!o || !(writer == 0 ? quick_read_back(rw) : writer == g->tid && quick_write_back(rw))))
		return RS_GUARD_NOT_GIVEN;
	return rs_guard_waited_for(o) ? RS_GUARD_GIVEN_WAKE : RS_GUARD_GIVEN;
}

/* --- semaphores -------------------------------------------------------------------------------------------------------------------- */

static inline __attribute__((always_inline)) bool rs_guard_sem_quickly(sem_t *sem)
{
	struct rs_guard_log *g = rs_guard_mine;
	if (RS_UNLIKELY(!g || !rs_sem_quick || !quick_sem_private(sem)))
		return false;
	struct rs_guard_object *o = rs_guard_object((uintptr_t)sem);
	if (RS_UNLIKELY(!o || !rs_guard_begin_quickly(g)))
		return false;
	bool done = quick_sem_take(sem);
	if (RS_LIKELY(done))
		rs_guard_append_quickly(g, rs_guard_what_of(sem, RS_GUARD_SEM), rs_guard_ticket_shared(o), 0);
	rs_guard_end_quickly(g);
	return done;
}

/* The ticket before the act: whoever gets what is posted has a later one. */
static inline __attribute__((always_inline)) int rs_guard_sem_post_quickly(sem_t *sem)
{
	struct rs_guard_log *g = rs_guard_mine;
	if (RS_UNLIKELY(!g || !rs_sem_quick || !quick_sem_private(sem) || !quick_sem_open(sem)))
		return RS_GUARD_NOT_GIVEN;
	struct rs_guard_object *o = rs_guard_object((uintptr_t)sem);
	if (RS_UNLIKELY(!o || !rs_guard_begin_quickly(g)))
		return RS_GUARD_NOT_GIVEN;
	rs_guard_append_quickly(g, rs_guard_what_of(sem, RS_GUARD_SEM_POST), rs_guard_ticket_shared(o), 0);
	bool all = quick_sem_post(sem);
	rs_guard_end_quickly(g);
	return RS_UNLIKELY(all) ? RS_GUARD_GIVEN_WAKE_ALL : rs_guard_waited_for(o) ? RS_GUARD_GIVEN_WAKE : RS_GUARD_GIVEN;
}

/* --- conditions -------------------------------------------------------------------------------------------------------------------- */

/* A signal for which nobody waits. Whoever raises a condition's ticket has its slot. */
static inline __attribute__((always_inline)) bool rs_guard_signals_quickly(pthread_cond_t *c, bool all)
{
	enum { SHARED_OR_WAITED = ~2u /* of __wrefs: but for the clock */ };
	struct rs_guard_log *g = rs_guard_mine;
	if (RS_UNLIKELY(!g || __atomic_load_n(&c->__data.__wrefs, __ATOMIC_RELAXED) & SHARED_OR_WAITED))
		return false;
	struct rs_guard_object *o = rs_guard_object((uintptr_t)c);
	if (RS_UNLIKELY(!o || !rs_guard_begin_quickly(g)))
		return false;
	struct rs_guard_slot *s = &rs_guard_view.slots[o - rs_guard_view.objects];
	bool done = false;
	if (RS_LIKELY(!__atomic_exchange_n(&s->lock, 1, __ATOMIC_ACQUIRE))) {
		done = !s->head;
		if (RS_LIKELY(done))
			rs_guard_append_quickly(g, rs_guard_what_of(c, RS_GUARD_COND_SIGNAL), rs_guard_ticket_alone(o), all);
		__atomic_store_n(&s->lock, 0, __ATOMIC_RELEASE);
	}
	rs_guard_end_quickly(g);
	return done;
}
#endif
