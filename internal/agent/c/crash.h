/* crash.h: signals that are about to end the process. */
#ifndef RS_CRASH_H
#define RS_CRASH_H
#include "agent.h"
#include <signal.h>
#include <ucontext.h>

/* The program's default actions for such signals become ours, which tell what guard tells of a crash (else: that the process ends) and then are the default. Before the program runs. */
void rs_crash_begin(bool guard) __attribute__((visibility("hidden")));
/* The defaults are back; before the program restricts its system calls. */
void rs_crash_end(void) __attribute__((visibility("hidden")));
/* Is that our handler? Then the program is to see SIG_DFL. */
bool rs_crash_handles(const void *handler) __attribute__((visibility("hidden")));
/* The program sets the default action for a signal: the action to set in its place, ours; what it gave is kept. False: none. */
bool rs_crash_default(int sig, const struct sigaction *act, struct sigaction *ours) __attribute__((visibility("hidden")));
/* The signal's default action would become ours. */
bool rs_crash_takes(int sig) __attribute__((visibility("hidden")));
/* Our action as the program is to see it. */
void rs_crash_show(int sig, struct sigaction *old) __attribute__((visibility("hidden")));
/* A handler of the program's begins with a signal, or is over: if it sends itself that signal to die of it, the fault is what is told. */
void rs_crash_handled(int sig, const siginfo_t *info, const ucontext_t *uc, bool begins) __attribute__((visibility("hidden")));
/* Called, if set, when a fault is about to be told: tells what came of executing its epoch again, and, if asked (no heap block explains anything), who wrote the pointer that the instruction used, or of an abort what was looked at (g: the registers where it sent itself the signal; NULL: it did not do so by tgkill). True: that is known. */
struct rs_thread;
/* The call by which the calling thread has sent itself the signal in whose handler it tells of a crash, told once: the log of the epoch that ended there has nothing of it yet, and that of the next never will. 0: none. */
unsigned rs_crash_sent(void) __attribute__((visibility("hidden")));
extern bool (*rs_crash_cause)(struct rs_thread *t, int sig, const greg_t *g, bool ask) __attribute__((visibility("hidden")));
#endif
