/* uring.h: order through requests that are handed to the kernel (uring.c). */
#ifndef RS_URING_H
#define RS_URING_H
#include "called.h"

/* Whether the system call n hands requests to the kernel, takes completions, or makes what both are done by. */
bool rs_uring_has(unsigned n) __attribute__((visibility("hidden")));
/* Around such a call, where all accesses are told: c is who makes it, of which the thread is not looked at, result as the kernel gives it. */
void rs_uring_before(const struct rs_called *c, unsigned n, const long a[6]) __attribute__((visibility("hidden")));
void rs_uring_after(const struct rs_called *c, unsigned n, const long a[6], long result) __attribute__((visibility("hidden")));
/* The program mapped a descriptor, by mmap(). */
void rs_uring_mapped(uintptr_t at, int fd, uint64_t offset) __attribute__((visibility("hidden")));
/* Looks for rings that were made while nothing was told. Signals are blocked. */
void rs_uring_late(void) __attribute__((visibility("hidden")));
#endif
