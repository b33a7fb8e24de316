/* wait.c: the wait family. [all] only: the end of a child happens before the wait that finds it ended, whether it reaps it or not. All are cancellation points, so nothing
 * of ours is left to do if the real function never returns. */
#include "proc.h"
#include <sys/wait.h>

void rs_emit_wait(struct rs_thread *t, pid_t pid, int status)
{
	RS_EMIT(t, WAIT, wait, (uint32_t)pid, (uint32_t)status);
}

#define WAIT(real, ...) do { \
	struct rs_thread *t = rs_self(); \
	if (!t || !rs_config.all) \
		return real(__VA_ARGS__); \
	int own; \
	if (!status) \
		status = &own; \
	pid_t r = real(__VA_ARGS__); \
	if (r > 0 && (WIFEXITED(*status) || WIFSIGNALED(*status))) \
		rs_emit_wait(t, r, *status); \
	return r; } while (0)

RS_EXPORT pid_t wait(int *status) { WAIT(RS_REAL(wait), status); }
RS_EXPORT pid_t waitpid(pid_t pid, int *status, int options) { WAIT(RS_REAL(waitpid), pid, status, options); }
RS_EXPORT pid_t wait3(int *status, int options, struct rusage *usage) { WAIT(RS_REAL(wait3), status, options, usage); }
RS_EXPORT pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage) { WAIT(RS_REAL(wait4), pid, status, options, usage); }
RS_ALIAS(__wait, wait);
RS_ALIAS(__waitpid, waitpid);

static void emit_info(struct rs_thread *t, const siginfo_t *i)
{
	if (i->si_code == CLD_EXITED)
		rs_emit_wait(t, i->si_pid, (i->si_status & 0xff) << 8);
	else if (i->si_code == CLD_KILLED || i->si_code == CLD_DUMPED)
		rs_emit_wait(t, i->si_pid, i->si_status | (i->si_code == CLD_DUMPED ? 0x80 : 0));
}

/* A pidfd was found ready: its process has ended. Which it was the kernel tells of children that nobody has reaped; of others the event has no pid. */
void rs_waited_for(struct rs_thread *t, int pidfd)
{
	enum { OF_PIDFD = 3 };
	siginfo_t i = {0};
	if (!rs_sandboxed && RS_SYS5(SYS_waitid, OF_PIDFD, pidfd, &i, WEXITED | WNOWAIT | WNOHANG, NULL) == 0 && i.si_pid)
		emit_info(t, &i);
	else
		rs_emit_wait(t, 0, 0);
}

RS_EXPORT int waitid(idtype_t type, id_t id, siginfo_t *info, int options)
{
	struct rs_thread *t = rs_self();
	if (!t || !rs_config.all)
		return RS_REAL(waitid)(type, id, info, options);
	siginfo_t own = {0};
	siginfo_t *i = info ? info : &own;
	int r = rs_real.waitid(type, id, i, options);
	if (r == 0 && i->si_pid != 0)
		emit_info(t, i);
	return r;
}
