/* exec.c: the exec family. The event goes out before, and `exec-failed` after. Everything must work in a vfork child, which shares its
 * parent's memory: there rs_self() is NULL, and nothing but the stack is written. */
#include "evidence.h"
#include "proc.h"
#include "patch.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <unistd.h>

void rs_emit_exec(struct rs_thread *t, const char *path)
{
	if (rs_silent(t))
		return;
	size_t n = 0;
	for (const char *s = path; *s && n < MAX_PATH_TOLD; s++)
		n++;
	uint64_t *w = rs_reserve(t, RS_EV_EXEC, RS_EXEC_WORDS + (unsigned)((n + 7) / 8));
	if (!w)
		return;
	rs_put_exec(w, n);
	rs_put_bytes(w + RS_EXEC_WORDS, path, n);
	rs_commit_urgent(t);
}

/* What is to be said before the attempt, since after it there is nobody to say it. */
static struct rs_thread *announce(const struct rs_plan *p, const char *path)
{
	struct rs_thread *t = rs_self();
	if (!t) {
		if (rs_vfork.depth && p->why > 0)
			rs_vfork.why = p->why;
		return NULL;
	}
	rs_evidence_check(t, RS_NOTICED_EXEC);
	rs_emit_exec(t, path);
	if (p->why > 0)
		rs_emit_unfollowed(t, p->why, (pid_t)rs_own_pid, path);
	return t;
}

void rs_exec_failed(struct rs_thread *t, struct rs_plan *p)
{
	int e = errno;
	rs_plan_unmap(p);
	if (rs_vfork.depth)
		rs_vfork.why = 0;
	if (t)
		RS_EMIT(t, EXEC_FAILED, exec_failed, (uint32_t)e);
	errno = e;
}

/* Our two variables can be what makes the arguments too long; then the program goes without us. */
#define EXEC(plan, name, call) do { \
	char *const *env = RS_PLAN_ENV(&plan); \
	struct rs_thread *t = announce(&plan, name); \
	unsigned trap = rs_trap_hand_on(true); \
	int r = call; \
	if (errno == E2BIG && env != plan.envp) { \
		env = plan.envp; \
		if (t) \
			rs_emit_unfollowed(t, RS_UNFOLLOWED_NO_SESSION, (pid_t)rs_own_pid, name); \
		r = call; \
	} \
	rs_trap_take_back(trap); \
	rs_exec_failed(t, &plan); \
	return r; } while (0)

static int exec_path(const char *path, char *const *argv, char *const *envp)
{
	struct rs_plan plan;
	rs_plan_make(&plan, AT_FDCWD, path, false, argv, envp);
	if (rs_null(path))
		return RS_REAL(execve)(path, argv, envp);
	EXEC(plan, path, RS_REAL(execve)(path, argv, env));
}

static int exec_search(const char *file, char *const *argv, char *const *envp)
{
	struct rs_plan plan;
	rs_plan_make(&plan, AT_FDCWD, file, true, argv, envp);
	EXEC(plan, file, RS_REAL(execvpe)(file, argv, env));
}

RS_EXPORT int execve(const char *path, char *const *argv, char *const *envp) { return exec_path(path, argv, envp); }
RS_EXPORT int execv(const char *path, char *const *argv) { return exec_path(path, argv, environ); }
RS_EXPORT int execvp(const char *file, char *const *argv) { return exec_search(file, argv, environ); }
RS_EXPORT int execvpe(const char *file, char *const *argv, char *const *envp) { return exec_search(file, argv, envp); }

RS_EXPORT int fexecve(int fd, char *const *argv, char *const *envp)
{
	struct rs_plan plan;
	if (fd < 0 || rs_null(argv) || rs_null(envp)) /* EINVAL, by the real one */
		return RS_REAL(fexecve)(fd, argv, envp);
	rs_plan_make(&plan, fd, "", false, argv, envp);
	EXEC(plan, "", RS_REAL(fexecve)(fd, argv, env));
}

RS_EXPORT int execveat(int dirfd, const char *path, char *const *argv, char *const *envp, int flags)
{
	struct rs_plan plan;
	if (rs_null(path))
		return RS_REAL(execveat)(dirfd, path, argv, envp, flags);
	rs_plan_make(&plan, dirfd, path, false, argv, envp);
	EXEC(plan, path, RS_REAL(execveat)(dirfd, path, argv, env, flags));
}

/* The list of execl and its kin, up to and with the NULL, as a vector in the calling function's frame. */
#define LIST(argv, first) \
	va_list ap; \
	size_t n = 1; \
	va_start(ap, first); \
	bool empty = rs_null(first); \
	if (!empty) \
		while (va_arg(ap, char *)) \
			n++; \
	va_end(ap); \
	char **argv = __builtin_alloca((n + 1) * sizeof *argv); \
	argv[0] = (char *)(uintptr_t)first; \
	va_start(ap, first); \
	for (size_t i = 1; i <= n; i++) \
		argv[i] = !empty ? va_arg(ap, char *) : NULL

RS_EXPORT int execl(const char *path, const char *arg, ...)
{
	LIST(argv, arg);
	va_end(ap);
	return exec_path(path, argv, environ);
}

RS_EXPORT int execlp(const char *file, const char *arg, ...)
{
	LIST(argv, arg);
	va_end(ap);
	return exec_search(file, argv, environ);
}

RS_EXPORT int execle(const char *path, const char *arg, ...)
{
	LIST(argv, arg);
	char *const *envp = va_arg(ap, char *const *);
	va_end(ap);
	return exec_path(path, argv, envp);
}
