/* semquick.h: how a semaphore of one process is posted, and taken without a wait, without a call of glibc's function. Whether the glibc at hand does the same is looked at in sem.c (rs_sem_quick).
 *
 * glibc's struct new_sem (2.21 and later): the count, above it how many wait in glibc, as nobody does while `guard` keeps a log but those of before it; then 0, or 128 if other processes may use it. */
#ifndef RS_SEMQUICK_H
#define RS_SEMQUICK_H
#include "agent.h"
#include <semaphore.h>

enum { SEM_MOST = 0x7fff0000 /* near to what glibc refuses */ };
typedef uint64_t rs_sem_word __attribute__((may_alias));
typedef int rs_sem_int __attribute__((may_alias));
static inline bool quick_sem_private(const sem_t *sem) { return ((const rs_sem_int *)sem)[2] == 0; }

/* False: it cannot be had at once. */
static inline bool quick_sem_take(sem_t *sem)
{
	rs_sem_word n = __atomic_load_n((rs_sem_word *)sem, __ATOMIC_RELAXED);
	do
		if (RS_UNLIKELY((uint32_t)n == 0))
			return false;
	while (!__atomic_compare_exchange_n((rs_sem_word *)sem, &n, n - 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
	return true;
}

/* May quick_sem_post be called? */
static inline bool quick_sem_open(const sem_t *sem) { return (uint32_t)__atomic_load_n((const rs_sem_word *)sem, __ATOMIC_RELAXED) < SEM_MOST; }
/* True: somebody waits in glibc. */
static inline bool quick_sem_post(sem_t *sem) { return __atomic_fetch_add((rs_sem_word *)sem, 1, __ATOMIC_RELEASE) >> 32; }
#endif
