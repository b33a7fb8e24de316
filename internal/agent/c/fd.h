/* fd.h: what fd.c and fdmake.c share: which kernel object a descriptor is. */
#ifndef RS_FD_H
#define RS_FD_H
#include "agent.h"

/* Identity of the kernel object behind a descriptor. kind 0: nothing that orders threads, or not known. */
struct rs_channel {
	uint64_t in;  /* channel that reading acquires */
	uint64_t out; /* channel that writing releases */
	uint8_t kind; /* enum Channel */
};

struct rs_channel rs_channel_of(int fd);
void rs_channel_forget(int fd);                            /* the number is free or means something else now */
void rs_channel_forget_range(unsigned lo, unsigned hi);
void rs_channel_set(int fd, struct rs_channel c);
void rs_channel_copy(int from, int to);                    /* dup */
uint64_t rs_channel_fresh(void);                           /* an identity that no inode gives */
uint64_t rs_channel_sysv(unsigned kind, int id);           /* a System V queue or set of semaphores */

/* The thread if descriptor events are wanted from it now. */
static inline struct rs_thread *rs_fd_thread(void)
{
	return rs_active && rs_config.all ? rs_self() : NULL;
}
#endif
