/* sysv.c: System V's message queues, semaphores and shared memory.
 *
 * Queues and semaphores order threads: told in all mode only, as channels. They are waited on in the real call, with nothing held. Memory that
 * is detached takes its sync objects with it, in every mode: how much that is, the kernel tells only when it is attached. */
#include "fd.h"
#include "proc.h"
#include <stdarg.h>
#include <sys/mman.h>

static void release(unsigned kind, int id)
{
	struct rs_thread *t = rs_fd_thread();
	if (t)
		RS_EMIT(t, CHANNEL_RELEASE, channel_release, rs_channel_sysv(kind, id), (uint8_t)kind, (uint32_t)-1);
}

static void acquire(unsigned kind, int id)
{
	struct rs_thread *t = rs_fd_thread();
	if (t)
		RS_EMIT(t, CHANNEL_ACQUIRE, channel_acquire, rs_channel_sysv(kind, id), (uint8_t)kind, (uint32_t)-1);
}

/* --- queues ------------------------------------------------------------------------------------------------------------- */

RS_EXPORT int msgsnd(int id, const void *message, size_t n, int flags)
{
	release(RS_CHANNEL_SYSV_MSG, id);
	return RS_REAL(msgsnd)(id, message, n, flags);
}
RS_ALIAS(__libc_msgsnd, msgsnd);

RS_EXPORT ssize_t msgrcv(int id, void *message, size_t n, long type, int flags)
{
	ssize_t r = RS_REAL(msgrcv)(id, message, n, type, flags);
	if (r >= 0)
		acquire(RS_CHANNEL_SYSV_MSG, id);
	return r;
}
RS_ALIAS(__libc_msgrcv, msgrcv);

/* --- semaphores ------------------------------------------------------------------------------------------------------------- */

RS_EXPORT int semtimedop(int id, struct sembuf *ops, size_t n, const struct timespec *timeout)
{
	if (RS_LIKELY(!rs_config.all))
		return RS_REAL(semtimedop)(id, ops, n, timeout);
	/* Which of the operations raise a value is not asked: the array may not be readable. */
	release(RS_CHANNEL_SYSV_SEM, id);
	int r = timeout ? RS_REAL(semtimedop)(id, ops, n, timeout) : RS_REAL(semop)(id, ops, n);
	if (r == 0)
		acquire(RS_CHANNEL_SYSV_SEM, id);
	return r;
}

RS_EXPORT int semop(int id, struct sembuf *ops, size_t n)
{
	return RS_LIKELY(!rs_config.all) ? RS_REAL(semop)(id, ops, n) : semtimedop(id, ops, n, NULL);
}

RS_EXPORT int semctl(int id, int n, int command, ...)
{
	va_list ap;
	va_start(ap, command); /* a word, or absent: passing on a word that was not given is what glibc does too */
	void *arg = va_arg(ap, void *);
	va_end(ap);
	if (command == SETVAL || command == SETALL || command == IPC_RMID)
		release(RS_CHANNEL_SYSV_SEM, id);
	return RS_REAL(semctl)(id, n, command, arg);
}

/* --- memory --------------------------------------------------------------------------------------------------------------------- */

/* What is attached. at 0: free, 1: being written. One that finds no room here keeps its sync objects for ever. */
static struct { uintptr_t at; size_t bytes; } attached[256];
enum { SEGMENTS = sizeof attached / sizeof *attached };

static void remember(uintptr_t at, size_t bytes)
{
	for (unsigned i = 0; i < SEGMENTS; i++) {
		uintptr_t is_free = 0;
		if (__atomic_compare_exchange_n(&attached[i].at, &is_free, 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
			attached[i].bytes = bytes;
			__atomic_store_n(&attached[i].at, at, __ATOMIC_RELEASE);
			return;
		}
	}
}

static size_t take_out(uintptr_t at)
{
	for (unsigned i = 0; at > 1 && i < SEGMENTS; i++) {
		uintptr_t seen = at;
		if (__atomic_load_n(&attached[i].at, __ATOMIC_ACQUIRE) != at)
			continue;
		size_t bytes = attached[i].bytes;
		if (__atomic_compare_exchange_n(&attached[i].at, &seen, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			return bytes;
	}
	return 0;
}

static size_t segment_bytes(int id)
{
	struct shmid_ds ds;
	return rs_sandboxed || RS_SYS3(SYS_shmctl, id, IPC_STAT, &ds) < 0 ? 0 : ds.shm_segsz;
}

RS_EXPORT void *shmat(int id, const void *want, int flags)
{
	struct rs_thread *t = rs_self();
	if (!t)
		return RS_REAL(shmat)(id, want, flags);
	size_t bytes = segment_bytes(id);
	if (want && flags & SHM_REMAP && bytes)
		rs_sync_memory_unmapped(t, (uintptr_t)want, bytes);
	void *p = RS_REAL(shmat)(id, want, flags);
	if (p == (void *)-1 || !bytes)
		return p;
	remember((uintptr_t)p, bytes);
	if (rs_config.all) {
		uint32_t stack = RS_STACK(t);
		RS_EMIT(t, MMAP, mmap, (uintptr_t)p, bytes, (uint32_t)(flags & SHM_RDONLY ? PROT_READ : PROT_READ | PROT_WRITE), MAP_SHARED, (uint32_t)-1, stack);
	}
	return p;
}

RS_EXPORT int shmdt(const void *p)
{
	struct rs_thread *t = rs_self();
	size_t bytes = t ? take_out((uintptr_t)p) : 0;
	if (bytes) {
		rs_sync_memory_unmapped(t, (uintptr_t)p, bytes);
		if (rs_config.all)
			RS_EMIT(t, MUNMAP, munmap, (uintptr_t)p, bytes);
	}
	return RS_REAL(shmdt)(p);
}
