/* guardquick.h: mutexes while `guard` keeps a log, as most are taken and given back: without a call, and without more below the stack pointer than their caller's frame, pushed at its beginning. See guardsync.h. */
#ifndef RS_GUARDQUICK_H
#define RS_GUARDQUICK_H
#include "guardlog.h"
#include "guardrace.h"
#include "mutexquick.h"
#include "sync.h"

/* Behind a locked instruction that let go a mutex or an rwlock. Who was woken says again that somebody may wait, before it tries: until then nobody calls the kernel in vain. */
static inline struct rs_guard_slot *rs_guard_waited_for(uintptr_t object)
{
	uint32_t i = rs_guard_find(rs_guard_view.objects, object);
	struct rs_guard_slot *s = &rs_guard_view.slots[i];
	return i != RS_GUARD_OBJECTS && RS_UNLIKELY(__atomic_load_n(&s->waiters, __ATOMIC_SEQ_CST)) ? s : NULL;
}

/* The event that `take` of guardsync.c makes of it. Its ticket needs no locked instruction: whoever raises it holds the mutex. */
static inline bool rs_guard_takes_quickly(pthread_mutex_t *m)
{
	struct rs_guard_log *g = rs_guard_mine;
	const struct rs_thread *t = rs_thread_tls;
	const struct rs_guard_world *w = rs_guard_view.world;
	int kind = m->__data.__kind;
	if (RS_UNLIKELY(!g || !t || !rs_quick || !QUICK(kind) || g->signals))
		return false;
	if (RS_UNLIKELY(__atomic_load_n(&w->mode, __ATOMIC_ACQUIRE) != RS_GUARD_RECORD || g->tid != t->tid))
		return false;
	if (RS_UNLIKELY(kind) && quick_again(m, t->tid))
		return true;
	uint32_t i = rs_guard_find(rs_guard_view.objects, (uintptr_t)m);
	if (RS_UNLIKELY(i == RS_GUARD_OBJECTS))
		return false;
	__atomic_store_n(&g->inner, RS_GUARD_INNER, __ATOMIC_RELEASE);
	RS_BARRIER();
	uint32_t at = g->at;
	bool done = __atomic_load_n(&w->mode, __ATOMIC_ACQUIRE) == RS_GUARD_RECORD && !__atomic_load_n(&w->ending, __ATOMIC_ACQUIRE) && at < g->quick && quick_take(m, t->tid);
	if (RS_LIKELY(done)) {
		if (RS_UNLIKELY(QUICK_RECURSIVE(kind)))
			m->__data.__count = 1;
		struct rs_guard_object *o = &rs_guard_view.objects[i];
		uint32_t ticket = __atomic_load_n(&o->ticket, __ATOMIC_RELAXED);
		__atomic_store_n(&o->ticket, ticket + 1, __ATOMIC_RELAXED);
		struct rs_guard_event *last = &g->event[at - (at > 0)];
		uint32_t more = (uint32_t)-last->result;
		/* at 0: what lies there is the last epoch's. */
		if (at > 0 && last->what == RS_GUARD_WHAT(m, RS_GUARD_MUTEX) && more < RS_GUARD_RUN && last->ticket + more + 1 == ticket)
			last->result = -(int32_t)(more + 1);
		else {
			g->event[at] = (struct rs_guard_event){RS_GUARD_WHAT(m, RS_GUARD_MUTEX), ticket, 0};
			__atomic_store_n(&g->at, at + 1, __ATOMIC_RELEASE);
		}
	}
	RS_BARRIER();
	__atomic_store_n(&g->inner, 0, __ATOMIC_RELEASE);
	return done;
}

/* 1: given back. 2: and rs_guard_mutex_wake is to be called. 0: nothing was done. */
static inline int rs_guard_gives_quickly(pthread_mutex_t *m)
{
	const struct rs_thread *t = rs_thread_tls;
	int kind = m->__data.__kind;
	if (RS_UNLIKELY(!t || !rs_quick || !QUICK(kind) || (uint32_t)m->__data.__owner != t->tid))
		return 0;
	RS_GUARD_GIVES((uintptr_t)m, false);
	if (RS_UNLIKELY(kind)) {
		if (quick_back(m, t->tid))
			return 1;
		if (QUICK_RECURSIVE(kind))
			m->__data.__count = 0;
	}
	quick_give(m);
	return rs_guard_waited_for((uintptr_t)m) ? 2 : 1;
}
#endif
