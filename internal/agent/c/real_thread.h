/* real_thread.h: real functions that thread.c interposes. */
#include <time.h>
#define RS_REAL_THREAD \
	R(int, pthread_create, "", (pthread_t *, const pthread_attr_t *, void *(*)(void *), void *)) \
	R(int, pthread_join, "", (pthread_t, void **)) \
	R(int, pthread_tryjoin_np, "", (pthread_t, void **)) \
	R(int, pthread_timedjoin_np, "", (pthread_t, void **, const struct timespec *)) \
	R(int, pthread_clockjoin_np, "", (pthread_t, void **, clockid_t, const struct timespec *)) \
	R(int, pthread_detach, "", (pthread_t)) \
	R(void, pthread_exit, "", (void *)) \
	R(int, pthread_cancel, "", (pthread_t)) \
	R(int, pthread_setname_np, "", (pthread_t, const char *)) \
	R(int, thrd_create, "", (thrd_t *, thrd_start_t, void *)) \
	R(int, thrd_join, "", (thrd_t, int *)) \
	R(int, thrd_detach, "", (thrd_t)) \
	R(void, thrd_exit, "", (int))
