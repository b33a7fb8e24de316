/* spawn.c: posix_spawn, and what spawns inside glibc: by an internal symbol, with the environment as it is, from which init.c took our variables.
 * So system is built here on posix_spawn, and popen in popen.c; of wordexp's children it is only told that there were some. */
#include "proc.h"
#include "race.h"
#include "patch.h"
#include "share.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

int rs_spawn(rs_spawn_fn *real, bool search, pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
	const posix_spawnattr_t *attr, char *const *argv, char *const *envp, uintptr_t pc, void *frame)
{
	struct rs_plan plan;
	rs_plan_make(&plan, AT_FDCWD, path, search, argv, envp);
	struct rs_thread *t = rs_self();
	pid_t child = 0;
	char *const *env = RS_PLAN_ENV(&plan);
	unsigned trap = rs_trap_hand_on(false);
	rs_guard_out(RS_GUARD_LOST_PROCESS);
	rs_race_fork_begins();
	rs_share_spawn(true);
	int r = real(&child, path, actions, attr, argv, env);
	if (r == E2BIG && env != envp) {
		/* Our two variables can be what makes it too long. */
		plan.why = RS_UNFOLLOWED_NO_SESSION;
		r = real(&child, path, actions, attr, argv, envp);
	}
	rs_share_spawn(false);
	rs_guard_in();
	rs_trap_take_back(trap);
	rs_plan_unmap(&plan);
	if (r == 0) {
		if (pid)
			*pid = child;
		if (t) {
			rs_emit_fork(t, child, rs_stack_from(t, pc, frame, rs_config.stack_depth));
			if (plan.why > 0)
				rs_emit_unfollowed(t, plan.why, child, path);
		}
	}
	return r;
}

RS_EXPORT int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attr,
	char *const *argv, char *const *envp)
{
	return rs_spawn(RS_REAL(posix_spawn), false, pid, path, actions, attr, argv, envp, RS_CALLER(), __builtin_frame_address(0));
}

RS_EXPORT int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attr,
	char *const *argv, char *const *envp)
{
	return rs_spawn(RS_REAL(posix_spawnp), true, pid, file, actions, attr, argv, envp, RS_CALLER(), __builtin_frame_address(0));
}

/* Until glibc 2.15 a file without a known format was given to the shell. */
int rs_old_posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attr,
	char *const *argv, char *const *envp);
RS_EXPORT int rs_old_posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attr,
	char *const *argv, char *const *envp)
{
	return rs_spawn(RS_REAL(old_posix_spawn), false, pid, path, actions, attr, argv, envp, RS_CALLER(), __builtin_frame_address(0));
}
RS_OLD(rs_old_posix_spawn, posix_spawn, "GLIBC_2.2.5");

int rs_old_posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attr,
	char *const *argv, char *const *envp);
RS_EXPORT int rs_old_posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *attr,
	char *const *argv, char *const *envp)
{
	return rs_spawn(RS_REAL(old_posix_spawnp), true, pid, file, actions, attr, argv, envp, RS_CALLER(), __builtin_frame_address(0));
}
RS_OLD(rs_old_posix_spawnp, posix_spawnp, "GLIBC_2.2.5");

/* --- system ---------------------------------------------------------------------------------------------------------------- */

/* SIGINT and SIGQUIT are ignored from the first of the calls in progress to the last. */
static struct rs_latch system_lock;
static unsigned system_calls;
static struct sigaction old_int, old_quit;

/* As in glibc, the count stays: a child forked while another thread was in system has the signals ignored for good. */
void rs_system_after_fork(void) { system_lock.word = 0; }

static void ignore_keys(sigset_t *reset)
{
	struct sigaction ignore = {.sa_handler = SIG_IGN};
	sigemptyset(reset);
	rs_latch_take(&system_lock);
	if (system_calls++ == 0) {
		RS_REAL(sigaction)(SIGINT, &ignore, &old_int);
		RS_REAL(sigaction)(SIGQUIT, &ignore, &old_quit);
	}
	if (old_int.sa_handler != SIG_IGN)
		sigaddset(reset, SIGINT);
	if (old_quit.sa_handler != SIG_IGN)
		sigaddset(reset, SIGQUIT);
	rs_latch_give(&system_lock);
}

static void restore_keys(void)
{
	rs_latch_take(&system_lock);
	if (--system_calls == 0) {
		rs_real.sigaction(SIGINT, &old_int, NULL);
		rs_real.sigaction(SIGQUIT, &old_quit, NULL);
	}
	rs_latch_give(&system_lock);
}

/* system is a cancellation point; a cancelled one takes its shell with it. */
static void cancelled(void *pid)
{
	int state, e = errno;
	RS_SYS2(SYS_kill, *(pid_t *)pid, SIGKILL);
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
	while (RS_REAL(waitpid)(*(pid_t *)pid, NULL, 0) < 0 && errno == EINTR)
		;
	pthread_setcancelstate(state, NULL);
	restore_keys();
	errno = e;
}

static int run(const char *command, uintptr_t pc, void *frame)
{
	int status = -1;
	sigset_t reset, chld, old = {{0}};
	ignore_keys(&reset);
	sigemptyset(&chld);
	sigaddset(&chld, SIGCHLD);
	RS_REAL(sigprocmask)(SIG_BLOCK, &chld, &old);

	posix_spawnattr_t attr;
	posix_spawnattr_init(&attr);
	sigset_t shells = old;
	if (rs_trapping && rs_trap_blocked())
		sigaddset(&shells, SIGTRAP);
	posix_spawnattr_setsigmask(&attr, &shells);
	posix_spawnattr_setsigdefault(&attr, &reset);
	posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
	char *argv[] = {(char *)"sh", (char *)"-c", (char *)(uintptr_t)command, NULL};
	pid_t pid = 0;
	int error = rs_spawn(RS_REAL(posix_spawn), false, &pid, "/bin/sh", NULL, &attr, argv, environ, pc, frame);
	posix_spawnattr_destroy(&attr);

	if (error == 0) {
		pthread_cleanup_push(cancelled, &pid);
		pid_t r;
		while ((r = RS_REAL(waitpid)(pid, &status, 0)) < 0 && errno == EINTR)
			;
		if (r != pid)
			status = -1;
		pthread_cleanup_pop(0);
		struct rs_thread *t = rs_self();
		if (t && rs_config.all && status != -1)
			rs_emit_wait(t, pid, status);
	} else {
		status = 127 << 8; /* as if the shell had said so */
	}
	int e = errno;
	restore_keys();
	rs_real.sigprocmask(SIG_SETMASK, &old, NULL);
	errno = error ? error : e;
	return status;
}

RS_EXPORT int system(const char *command)
{
	if (!rs_ctl || !rs_env_preload) {
		rs_guard_lost(RS_GUARD_LOST_PROCESS);
		return RS_REAL(system)(command);
	}
	if (!command)
		return run("exit 0", RS_CALLER(), __builtin_frame_address(0)) == 0;
	return run(command, RS_CALLER(), __builtin_frame_address(0));
}
RS_ALIAS(__libc_system, system);

/* --- wordexp --------------------------------------------------------------------------------------------------------------- */

/* Grows with every child that is waited for. */
static long faults_of_children(void)
{
	struct rusage u;
	return RS_SYS2(SYS_getrusage, RUSAGE_CHILDREN, &u) < 0 ? 0 : u.ru_minflt;
}

/* Command substitution makes shells inside glibc, with the environment as it is, between what only glibc's parser knows: they are not followed. */
RS_EXPORT int wordexp(const char *words, wordexp_t *we, int flags)
{
	struct rs_thread *t = flags & WRDE_NOCMD ? NULL : rs_self();
	long before = t ? faults_of_children() : 0;
	rs_guard_out(RS_GUARD_LOST_PROCESS);
	int r = RS_REAL(wordexp)(words, we, flags);
	rs_guard_in();
	if (t && faults_of_children() != before && (t = rs_self()))
		rs_emit_unfollowed(t, rs_config.follow ? RS_UNFOLLOWED_INSIDE_LIBC : RS_UNFOLLOWED_TURNED_OFF, 0, "/bin/sh");
	return r;
}
