/* mutexquick.h: how a free mutex of the usual kinds is taken and given back without a call of glibc's function. Whether the glibc at hand does the same is looked at in mutex.c (rs_quick). */
#ifndef RS_MUTEXQUICK_H
#define RS_MUTEXQUICK_H
#include "agent.h"
#include "os.h"
#include <pthread.h>
#include <sys/single_threaded.h>
#include <sys/syscall.h>

/* glibc's bits of __kind. */
enum { TYPE = 3, RECURSIVE = 1, ERRORCHECK = 2, ADAPTIVE = 3, ROBUST = 16, INHERIT = 32, PROTECT = 64, PSHARED = 128, ELISION = 256, NO_ELISION = 512 };
/* The types that the quick path knows: private, without protocol or elision. */
#define QUICK(kind) (((kind) & ~NO_ELISION) == 0 || ((kind) & ~NO_ELISION) == RECURSIVE || ((kind) & ~NO_ELISION) == ADAPTIVE)
#define QUICK_RECURSIVE(kind) ((kind) & RECURSIVE && !((kind) & ERRORCHECK)) /* of these */

/* As glibc, without a locked instruction where there is one thread (alone: __libc_single_threaded). */
static inline bool quick_take_if(pthread_mutex_t *m, uint32_t tid, bool alone)
{
	if (alone) {
		if (RS_UNLIKELY(m->__data.__lock != 0))
			return false;
		m->__data.__lock = 1;
	} else {
		int zero = 0;
		if (!__atomic_compare_exchange_n(&m->__data.__lock, &zero, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
			return false;
	}
	m->__data.__owner = (int)tid;
	m->__data.__nusers++;
	return true;
}
static inline bool quick_take(pthread_mutex_t *m, uint32_t tid) { return quick_take_if(m, tid, __libc_single_threaded); }

/* True: quick_wake is to be called. */
static inline bool quick_let_go_if(pthread_mutex_t *m, bool alone)
{
	m->__data.__owner = 0;
	m->__data.__nusers--;
	if (!alone)
		return __atomic_exchange_n(&m->__data.__lock, 0, __ATOMIC_RELEASE) > 1;
	*(volatile int *)&m->__data.__lock = 0;
	return false;
}
static inline bool quick_let_go(pthread_mutex_t *m) { return quick_let_go_if(m, __libc_single_threaded); }

/* As in glibc the memory may be gone by now; then the wake-up goes nowhere or is spurious. */
static inline void quick_wake(pthread_mutex_t *m) { RS_PROGRAM3(SYS_futex, &m->__data.__lock, 1 /* FUTEX_WAKE */ | 128 /* PRIVATE */, 1); }

static inline void quick_give(pthread_mutex_t *m)
{
	if (quick_let_go(m))
		quick_wake(m);
}

/* A recursive mutex that this thread holds, taken once more or given back so that it is still held; false: it is not that, or its count is full. */
static inline bool quick_again(pthread_mutex_t *m, uint32_t tid)
{
	if (!QUICK_RECURSIVE(m->__data.__kind) || (uint32_t)m->__data.__owner != tid || m->__data.__count + 1 == 0)
		return false;
	m->__data.__count++;
	return true;
}

static inline bool quick_back(pthread_mutex_t *m, uint32_t tid)
{
	if (!QUICK_RECURSIVE(m->__data.__kind) || (uint32_t)m->__data.__owner != tid || m->__data.__count <= 1)
		return false;
	m->__data.__count--;
	return true;
}
#endif
