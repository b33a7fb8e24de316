/* blocked.h: waits until a thread sleeps in a call, told by the kernel and not by time. */
#ifndef BLOCKED_H
#define BLOCKED_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "order.h"

/* The system call number in which thread tid of this process sleeps, and its first argument; -1: it does not sleep in one. By raw system
 * calls, so that reading these files orders nothing. */
static inline long sleeps_in(pid_t tid, unsigned long *arg)
{
	char path[64], text[256];
	long nr = -1, fd, n;
	snprintf(path, sizeof path, "/proc/self/task/%d/syscall", tid);
	__asm__ volatile("syscall" : "=a"(fd) : "0"(SYS_open), "D"(path), "S"(O_RDONLY), "d"(0) : "rcx", "r11", "memory");
	if (fd < 0) {
		fprintf(stderr, "%s: %s\n", path, strerror((int)-fd));
		_exit(99);
	}
	__asm__ volatile("syscall" : "=a"(n) : "0"(SYS_read), "D"(fd), "S"(text), "d"(sizeof text - 1) : "rcx", "r11", "memory");
	long ignored;
	__asm__ volatile("syscall" : "=a"(ignored) : "0"(SYS_close), "D"(fd) : "rcx", "r11", "memory");
	text[n > 0 ? n : 0] = 0;
	if (sscanf(text, "%ld %lx", &nr, arg) != 2)
		return -1; /* "running" */
	return nr;
}

/* Until it sleeps in a futex. */
static inline void await_blocked(pid_t tid)
{
	unsigned long arg;
	while (sleeps_in(tid, &arg) != SYS_futex)
		sched_yield();
}

/* Until it sleeps in a futex that is one of the bytes of object. */
static inline void await_blocked_on(pid_t tid, const void *object, size_t size)
{
	unsigned long arg;
	while (sleeps_in(tid, &arg) != SYS_futex || arg - (unsigned long)object >= size)
		sched_yield();
}
#endif
