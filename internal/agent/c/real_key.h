/* real_key.h: real functions that key.c interposes. */
#ifndef RS_REAL_KEY_H
#define RS_REAL_KEY_H
#include <pthread.h>
#include <threads.h>
#define RS_REAL_KEY \
	R(int, pthread_key_create, "GLIBC_2.34", (pthread_key_t *, void (*)(void *))) \
	R(int, pthread_key_delete, "GLIBC_2.34", (pthread_key_t)) \
	R(int, tss_create, "GLIBC_2.34", (tss_t *, tss_dtor_t)) \
	R(void, tss_delete, "GLIBC_2.34", (tss_t))
#endif
