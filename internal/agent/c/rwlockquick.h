/* rwlockquick.h: how a free rwlock, or one that is read, is taken and given back without a call of glibc's function. Whether the glibc at hand does the same is looked at in rwlock.c (rs_rwlock_quick).
 *
 * glibc's (2.25 and later): __readers counts them by eights and says below that whether a writer has it (2), whose turn it is (1: writers', as whoever wrote last left it), and whether readers wait for readers (4). Nobody waits inside
 * glibc while `guard` keeps a log, but those of before it: where there is a trace of them nothing is done here. */
#ifndef RS_RWLOCKQUICK_H
#define RS_RWLOCKQUICK_H
#include "agent.h"
#include <pthread.h>

enum { RW_WRITING = 1, RW_WRITTEN = 2, RW_READER = 8, RW_MOST = 1 << 24 /* far below where glibc refuses more */ };

/* Each of these: false: nothing was done. */
static inline bool quick_read(pthread_rwlock_t *rw)
{
	unsigned r = __atomic_load_n(&rw->__data.__readers, __ATOMIC_RELAXED);
	do
		if (RS_UNLIKELY((r & (RW_READER - 1) && r != RW_WRITING) || r >= RW_MOST))
			return false;
	while (!__atomic_compare_exchange_n(&rw->__data.__readers, &r, (r & ~(unsigned)RW_WRITING) + RW_READER, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
	if (r & RW_WRITING)
		__atomic_store_n(&rw->__data.__wrphase_futex, 0, __ATOMIC_RELAXED);
	return true;
}

static inline bool quick_write(pthread_rwlock_t *rw, uint32_t tid)
{
	unsigned r = __atomic_load_n(&rw->__data.__readers, __ATOMIC_RELAXED);
	if (RS_UNLIKELY(r & ~(unsigned)RW_WRITING) || !__atomic_compare_exchange_n(&rw->__data.__readers, &r, RW_WRITING | RW_WRITTEN, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return false;
	__atomic_store_n(&rw->__data.__writers_futex, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&rw->__data.__wrphase_futex, 1, __ATOMIC_RELAXED);
	__atomic_store_n(&rw->__data.__cur_writer, (int)tid, __ATOMIC_RELAXED);
	return true;
}

static inline bool quick_read_back(pthread_rwlock_t *rw)
{
	unsigned r = __atomic_load_n(&rw->__data.__readers, __ATOMIC_RELAXED);
	do
		if (RS_UNLIKELY(r & (RW_READER - 1) || r < RW_READER))
			return false;
	while (!__atomic_compare_exchange_n(&rw->__data.__readers, &r, r - RW_READER, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED));
	return true;
}

/* By its writer. */
static inline bool quick_write_back(pthread_rwlock_t *rw)
{
	unsigned r = RW_WRITING | RW_WRITTEN;
	int tid = rw->__data.__cur_writer;
	if (RS_UNLIKELY(__atomic_load_n(&rw->__data.__readers, __ATOMIC_RELAXED) != r || rw->__data.__writers))
		return false;
	__atomic_store_n(&rw->__data.__cur_writer, 0, __ATOMIC_RELAXED);
	unsigned wait = __atomic_exchange_n(&rw->__data.__writers_futex, 0, __ATOMIC_RELAXED);
	if (RS_LIKELY(wait == 1) && RS_LIKELY(__atomic_compare_exchange_n(&rw->__data.__readers, &r, RW_WRITING, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED)))
		return true;
	/* Somebody came: as it was, so that who gives it back finds that. */
	__atomic_store_n(&rw->__data.__writers_futex, wait, __ATOMIC_RELAXED);
	__atomic_store_n(&rw->__data.__cur_writer, tid, __ATOMIC_RELAXED);
	return false;
}
#endif
