/* c11.c: mtx_*, cnd_*, call_once. In glibc they are the pthread functions by internal names, with the results translated; so the
 * interposed pthread functions do not see them, and they are built on the same code here. */
#include "sync.h"

_Static_assert(sizeof(mtx_t) == sizeof(pthread_mutex_t) && sizeof(cnd_t) == sizeof(pthread_cond_t), "C11 types");

static int result(int error)
{
	switch (error) {
	case 0: return thrd_success;
	case ENOMEM: return thrd_nomem;
	case ETIMEDOUT: return thrd_timedout;
	case EBUSY: return thrd_busy;
	}
	return thrd_error;
}

RS_EXPORT int mtx_init(mtx_t *m, int type)
{
	struct rs_thread *t = rs_self();
	int r = REAL(mtx_init)(m, type);
	if (t && r == thrd_success) {
		rs_sync_ready(t);
		rs_object_init(t, (uintptr_t)m, RS_OBJECT_MUTEX, rs_mutex_flags((uintptr_t)m) | RS_OBJ_FLAG_C11, 0, rs_site_stack(t, RS_SITE));
	}
	return r;
}

RS_EXPORT void mtx_destroy(mtx_t *m) { rs_mutex_destroy((pthread_mutex_t *)m, RS_SITE); }
RS_EXPORT int mtx_lock(mtx_t *m) { return result(rs_mutex_lock((pthread_mutex_t *)m, RS_SITE)); }
RS_EXPORT int mtx_trylock(mtx_t *m) { return result(rs_mutex_trylock((pthread_mutex_t *)m, RS_SITE)); }
RS_EXPORT int mtx_unlock(mtx_t *m) { return result(rs_mutex_unlock((pthread_mutex_t *)m, RS_SITE)); }

RS_EXPORT int mtx_timedlock(mtx_t *restrict m, const struct timespec *restrict abstime)
{
	return result(rs_mutex_timedlock((pthread_mutex_t *)m, -1, abstime, RS_SITE));
}

RS_EXPORT int cnd_init(cnd_t *c) { return result(rs_cond_init((pthread_cond_t *)c, NULL, RS_OBJ_FLAG_C11, RS_SITE)); }
RS_EXPORT void cnd_destroy(cnd_t *c) { rs_cond_destroy((pthread_cond_t *)c, RS_SITE); }
RS_EXPORT int cnd_signal(cnd_t *c) { return result(rs_cond_signal((pthread_cond_t *)c, false, RS_SITE)); }
RS_EXPORT int cnd_broadcast(cnd_t *c) { return result(rs_cond_signal((pthread_cond_t *)c, true, RS_SITE)); }
RS_EXPORT int cnd_wait(cnd_t *c, mtx_t *m) { return result(rs_cond_wait((pthread_cond_t *)c, (pthread_mutex_t *)m, -1, NULL, RS_SITE)); }

RS_EXPORT int cnd_timedwait(cnd_t *restrict c, mtx_t *restrict m, const struct timespec *restrict abstime)
{
	return result(rs_cond_wait((pthread_cond_t *)c, (pthread_mutex_t *)m, -1, abstime, RS_SITE));
}

RS_EXPORT void call_once(once_flag *flag, void (*routine)(void)) { rs_once((pthread_once_t *)flag, routine, RS_SITE); }
