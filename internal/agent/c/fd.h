/* fd.h: what fd.c and fdmake.c share: which kernel object a descriptor is. */
#ifndef RS_FD_H
#define RS_FD_H
#include "agent.h"

/* Identity of the kernel object behind a descriptor. kind 0: nothing that orders threads, or not known. */
struct rs_channel {
	uint64_t in;  /* channel that reading acquires */
	uint64_t out; /* channel that writing releases */
	uint8_t kind; /* enum Channel, or RS_PIDFD */
};
#define RS_PIDFD 200 /* no channel: a process, which has ended when it is ready */

/* Whether it is one that threads are ordered by. */
static inline bool rs_channel_orders(struct rs_channel c) { return c.kind && c.kind != RS_PIDFD; }

/* Channels that no inode gives; mixed identities are so small by chance alone. All sockets whose ends are not known; locks of files that cannot be asked for; what is watched (watch.c); ld.so (dl.c). */
enum { RS_CHANNEL_ANY_SOCKET = 4, RS_CHANNEL_ANY_LOCK, RS_CHANNEL_WATCH, RS_CHANNEL_LOADER };

struct rs_channel rs_channel_of(int fd);
void rs_channel_forget(int fd);                            /* the number is free or means something else now */
void rs_channel_forget_range(unsigned lo, unsigned hi);
void rs_channel_set(int fd, struct rs_channel c);
void rs_channel_copy(int from, int to);                    /* dup */
uint64_t rs_channel_fresh(void);                           /* an identity that no inode gives */
uint64_t rs_channel_lock(int fd, bool readers);            /* the lock of the file behind it: what its writers tell; or what its readers tell the next writer */
uint64_t rs_channel_stream(const void *file);              /* the lock of a FILE */
uint64_t rs_channel_request(const void *block);            /* a request of asynchronous I/O, by its control block */
struct rs_channel rs_channel_calls(const void *address, size_t n); /* by which connect orders accept: of whom it calls, which need not be readable */
struct rs_channel rs_channel_called(int fd);               /* likewise of a new connection's descriptor */
struct rs_channel rs_channel_named_socket(void);           /* of a descriptor that libc has for itself */
/* What is known of locks of the file that were taken by a descriptor, which its close gives up: flock's, the open file's by fcntl; by it or by one that it was copied from. KNOWN: these are all; COPIED: another descriptor may have changed
 * them. */
enum { RS_FLOCK_SHARED = 1, RS_FLOCK_EXCLUSIVE = 2, RS_FLOCK = 3, RS_OFD_SHARED = 4, RS_OFD_EXCLUSIVE = 8, RS_OFD = 12, RS_LOCKED = 15, RS_FLOCK_KNOWN = 16, RS_OFD_KNOWN = 32, RS_LOCKS_KNOWN = 48, RS_LOCKS_COPIED = 64 };
void rs_channel_locks(int fd, unsigned clear, unsigned set);
unsigned rs_channel_locked(int fd);
void rs_fd_ready(int fd);                                  /* fd.c: a call said that there is something to read */
void rs_filelock_before(int fd, unsigned of);              /* filelock.c: a lock may be given up by it, or another taken in its place: RS_FLOCK, RS_OFD, or RS_LOCKED */
void rs_filelock_taken(int fd, unsigned how);              /* one of the first four */
uint64_t rs_channel_sysv(unsigned kind, int id);           /* a System V queue or set of semaphores */

/* The thread if descriptor events are wanted from it now. */
static inline struct rs_thread *rs_fd_thread(void)
{
	return rs_active && rs_config.all ? rs_self() : NULL;
}

/* watch.c: there is a descriptor of inotify or fanotify. */
extern bool rs_watching __attribute__((visibility("hidden")));
void rs_watch_tell(void) __attribute__((visibility("hidden")));
/* Before a call of which such a descriptor may tell. */
static inline void rs_watch_changes(void)
{
	if (RS_UNLIKELY(__atomic_load_n(&rs_watching, __ATOMIC_RELAXED)))
		rs_watch_tell();
}
#endif
