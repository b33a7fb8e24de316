/* real_sync.h: real functions that the files of the synchronisation objects interpose. pthread_cond_* have a second, older form for
 * binaries of before glibc 2.3.2 (oldcond.c); the others that are listed twice in libc.so.6 are the same code under both versions. */
#define RS_REAL_SYNC \
	R(int, pthread_mutex_init, "", (pthread_mutex_t *, const pthread_mutexattr_t *)) \
	R(int, pthread_mutex_destroy, "", (pthread_mutex_t *)) \
	R(int, pthread_mutex_lock, "", (pthread_mutex_t *)) \
	R(int, pthread_mutex_trylock, "", (pthread_mutex_t *)) \
	R(int, pthread_mutex_timedlock, "", (pthread_mutex_t *, const struct timespec *)) \
	R(int, pthread_mutex_clocklock, "", (pthread_mutex_t *, clockid_t, const struct timespec *)) \
	R(int, pthread_mutex_unlock, "", (pthread_mutex_t *)) \
	R(int, pthread_mutex_consistent, "", (pthread_mutex_t *)) \
	R(int, pthread_mutex_setprioceiling, "", (pthread_mutex_t *, int, int *)) \
	R(int, pthread_mutexattr_getpshared, "", (const pthread_mutexattr_t *, int *)) \
	R(int, pthread_rwlock_init, "", (pthread_rwlock_t *, const pthread_rwlockattr_t *)) \
	R(int, pthread_rwlock_destroy, "", (pthread_rwlock_t *)) \
	R(int, pthread_rwlock_rdlock, "", (pthread_rwlock_t *)) \
	R(int, pthread_rwlock_wrlock, "", (pthread_rwlock_t *)) \
	R(int, pthread_rwlock_tryrdlock, "", (pthread_rwlock_t *)) \
	R(int, pthread_rwlock_trywrlock, "", (pthread_rwlock_t *)) \
	R(int, pthread_rwlock_timedrdlock, "", (pthread_rwlock_t *, const struct timespec *)) \
	R(int, pthread_rwlock_timedwrlock, "", (pthread_rwlock_t *, const struct timespec *)) \
	R(int, pthread_rwlock_clockrdlock, "", (pthread_rwlock_t *, clockid_t, const struct timespec *)) \
	R(int, pthread_rwlock_clockwrlock, "", (pthread_rwlock_t *, clockid_t, const struct timespec *)) \
	R(int, pthread_rwlock_unlock, "", (pthread_rwlock_t *)) \
	R(int, pthread_spin_init, "", (pthread_spinlock_t *, int)) \
	R(int, pthread_spin_destroy, "", (pthread_spinlock_t *)) \
	R(int, pthread_spin_lock, "", (pthread_spinlock_t *)) \
	R(int, pthread_spin_trylock, "", (pthread_spinlock_t *)) \
	R(int, pthread_spin_unlock, "", (pthread_spinlock_t *)) \
	R(int, pthread_cond_init, "GLIBC_2.3.2", (pthread_cond_t *, const pthread_condattr_t *)) \
	R(int, pthread_cond_destroy, "GLIBC_2.3.2", (pthread_cond_t *)) \
	R(int, pthread_cond_wait, "GLIBC_2.3.2", (pthread_cond_t *, pthread_mutex_t *)) \
	R(int, pthread_cond_timedwait, "GLIBC_2.3.2", (pthread_cond_t *, pthread_mutex_t *, const struct timespec *)) \
	R(int, pthread_cond_clockwait, "", (pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *)) \
	R(int, pthread_cond_signal, "GLIBC_2.3.2", (pthread_cond_t *)) \
	R(int, pthread_cond_broadcast, "GLIBC_2.3.2", (pthread_cond_t *)) \
	R_AS(int, old_cond_wait, pthread_cond_wait, "GLIBC_2.2.5", (void *, pthread_mutex_t *)) \
	R_AS(int, old_cond_timedwait, pthread_cond_timedwait, "GLIBC_2.2.5", (void *, pthread_mutex_t *, const struct timespec *)) \
	R_AS(int, old_cond_signal, pthread_cond_signal, "GLIBC_2.2.5", (void *)) \
	R_AS(int, old_cond_broadcast, pthread_cond_broadcast, "GLIBC_2.2.5", (void *)) \
	R_AS(int, old_cond_init, pthread_cond_init, "GLIBC_2.2.5", (void *, const pthread_condattr_t *)) \
	R_AS(int, old_cond_destroy, pthread_cond_destroy, "GLIBC_2.2.5", (void *)) \
	R(int, pthread_barrier_init, "", (pthread_barrier_t *, const pthread_barrierattr_t *, unsigned)) \
	R(int, pthread_barrier_destroy, "", (pthread_barrier_t *)) \
	R(int, pthread_barrier_wait, "", (pthread_barrier_t *)) \
	R(int, sem_init, "", (sem_t *, int, unsigned)) \
	R(int, sem_destroy, "", (sem_t *)) \
	R(sem_t *, sem_open, "", (const char *, int, ...)) \
	R(int, sem_close, "", (sem_t *)) \
	R(int, sem_wait, "", (sem_t *)) \
	R(int, sem_trywait, "", (sem_t *)) \
	R(int, sem_timedwait, "", (sem_t *, const struct timespec *)) \
	R(int, sem_clockwait, "", (sem_t *, clockid_t, const struct timespec *)) \
	R(int, sem_post, "", (sem_t *)) \
	R(int, sem_getvalue, "", (sem_t *, int *)) \
	R(void, pthread_testcancel, "", (void)) \
	R(int, pthread_once, "", (pthread_once_t *, void (*)(void))) \
	R(int, mtx_init, "", (mtx_t *, int))
#define RS_REAL_SYNC_MAYBE \
	R(int, __cxa_guard_acquire, "", (uint64_t *)) \
	R(void, __cxa_guard_release, "", (uint64_t *)) \
	R(void, __cxa_guard_abort, "", (uint64_t *))
