/* dispatch.h: system calls that the kernel gives to the program: prctl(PR_SET_SYSCALL_USER_DISPATCH). dispatch.c. */
#ifndef RS_DISPATCH_H
#define RS_DISPATCH_H
#include "calls.h"

/* Some thread has asked for it. Never 0 again. */
extern uint32_t rs_dispatch_on __attribute__((visibility("hidden")));

#define RS_PR_SET_SYSCALL_USER_DISPATCH 59
/* The program's prctl of that kind, by syscall() or, named, by prctl(). The kernel's result. */
long rs_dispatch_prctl(long mode, long from, long length, long selector, bool named) __attribute__((visibility("hidden")));
/* As rs_call_before, of which it comes first. False: nothing of that kind is to be done, and *made is not set. */
bool rs_dispatch_before(struct rs_call *c, long *made) __attribute__((visibility("hidden")));
/* The program's call, where a function of ours makes it in place of libc's: at libc's own instruction. */
long rs_dispatch_program6(long n, long a, long b, long c, long d, long e, long f) __attribute__((visibility("hidden")));
/* As rs_call_after. True: it was one of rs_dispatch_before's. */
bool rs_dispatch_after(struct rs_call *c) __attribute__((visibility("hidden")));
/* Likewise at prctl()'s. */
long rs_dispatch_prctl_named(long option, long a, long b, long c, long d) __attribute__((visibility("hidden")));
/* Around calls of ours past os.h: until *selector is set to 1 again, if it is not NULL. */
volatile uint8_t *rs_dispatch_open(void) __attribute__((visibility("hidden")));
/* Around a vfork made in place of libc's. */
void rs_dispatch_vfork(void) __attribute__((visibility("hidden")));
void rs_dispatch_vfork_over(void) __attribute__((visibility("hidden")));
/* In a child that has one thread, and whose calls the kernel gives to nobody. */
void rs_dispatch_after_fork(void) __attribute__((visibility("hidden")));
/* Whoever sets rs_call_class anew with rs_dispatch_on: all are seen. */
void rs_dispatch_classes(void) __attribute__((visibility("hidden")));
#endif
