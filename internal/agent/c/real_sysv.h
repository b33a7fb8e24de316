/* real_sysv.h: real functions that sysv.c interposes. */
#ifndef RS_REAL_SYSV_H
#define RS_REAL_SYSV_H
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#define RS_REAL_SYSV \
	R(int, msgsnd, "", (int, const void *, size_t, int)) \
	R(ssize_t, msgrcv, "", (int, void *, size_t, long, int)) \
	R(int, semop, "", (int, struct sembuf *, size_t)) \
	R(int, semtimedop, "", (int, struct sembuf *, size_t, const struct timespec *)) \
	R(int, semctl, "", (int, int, int, ...)) \
	R(void *, shmat, "", (int, const void *, int)) \
	R(int, shmdt, "", (const void *))
#endif
