/* real_signal.h: real functions that signal.c and sigmask.c interpose, and cover.c. */
#ifndef RS_REAL_SIGNAL_H
#define RS_REAL_SIGNAL_H
#include <signal.h>
#include <time.h>
#include <ucontext.h>
#define RS_REAL_SIGNAL \
	R(int, sigaction, "", (int, const struct sigaction *, struct sigaction *)) \
	R(rs_sighandler, signal, "", (int, rs_sighandler)) \
	R(rs_sighandler, __sysv_signal, "", (int, rs_sighandler)) \
	R(rs_sighandler, sigset, "", (int, rs_sighandler)) \
	R(int, sigignore, "", (int)) \
	R(int, siginterrupt, "", (int, int)) \
	R(void, makecontext, "", (ucontext_t *, void (*)(void), int, ...)) \
	R(int, sigprocmask, "", (int, const sigset_t *, sigset_t *)) \
	R(int, pthread_sigmask, "GLIBC_2.32", (int, const sigset_t *, sigset_t *)) \
	R(int, sighold, "", (int)) \
	R(int, sigrelse, "", (int)) \
	R(int, sigblock, "", (int)) \
	R(int, sigsetmask, "", (int)) \
	R(int, sigsuspend, "", (const sigset_t *)) \
	R(int, __sigpause, "", (int, int)) \
	R(int, sigwait, "", (const sigset_t *, int *)) \
	R(int, sigwaitinfo, "", (const sigset_t *, siginfo_t *)) \
	R(int, sigtimedwait, "", (const sigset_t *, siginfo_t *, const struct timespec *)) \
	R(int, kill, "", (pid_t, int)) \
	R(int, killpg, "", (pid_t, int)) \
	R(int, tgkill, "", (pid_t, pid_t, int)) \
	R(int, raise, "", (int)) \
	R(int, sigqueue, "", (pid_t, int, union sigval)) \
	R(int, pthread_kill, "GLIBC_2.34", (pthread_t, int)) \
	R_AS(int, old_pthread_kill, pthread_kill, "GLIBC_2.2.5", (pthread_t, int)) \
	R(int, pthread_sigqueue, "GLIBC_2.34", (pthread_t, int, union sigval))
typedef void (*rs_sighandler)(int);
#endif
