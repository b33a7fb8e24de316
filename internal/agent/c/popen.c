/* popen.c: popen and pclose, because glibc's spawn with the environment as it is (see spawn.c). The stream is an ordinary one, of
 * fdopen; that it has a child to wait for is kept in a list here, so fclose, which natively waits as well, is interposed too.
 *
 * As long as one such stream is open all popen goes this way, also when the session has ended: the streams that later children must
 * not have are all in one list. */
#include "called.h"
#include "fd.h"
#include "proc.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

struct stream {
	struct stream *next;
	FILE *file;
	pid_t pid;
};

static struct stream *open_streams, *spare;
static uint32_t open_count; /* read without the lock by fclose */
static struct rs_latch lock;

void rs_popen_after_fork(void) { lock.word = 0; }

/* NULL: no memory. */
static struct stream *node(void)
{
	rs_latch_take(&lock);
	if (!spare) {
		enum { N = 4096 / sizeof(struct stream) };
		struct stream *s = rs_os_map(4096);
		for (int i = 0; s && i < N; i++)
			s[i].next = i + 1 < N ? &s[i + 1] : NULL;
		spare = s;
	}
	struct stream *s = spare;
	if (s)
		spare = s->next;
	rs_latch_give(&lock);
	return s;
}

static void give_back(struct stream *s)
{
	rs_latch_take(&lock);
	s->next = spare;
	spare = s;
	rs_latch_give(&lock);
}

/* POSIX: the streams of earlier calls are closed in the child; but what was there at the child's own end has gone already. */
static int close_others(posix_spawn_file_actions_t *actions, int child_fd)
{
	for (struct stream *s = open_streams; s; s = s->next)
		if (s->file->_fileno != child_fd && posix_spawn_file_actions_addclose(actions, s->file->_fileno) != 0)
			return -1;
	return 0;
}

static int start_shell(struct stream *s, const char *command, FILE *file, int fd, int child_fd, uintptr_t pc, void *frame)
{
	posix_spawn_file_actions_t actions;
	posix_spawn_file_actions_init(&actions);
	char *argv[] = {(char *)"sh", (char *)"-c", (char *)(uintptr_t)command, NULL};
	int r = -1;
	rs_latch_take(&lock);
	if (posix_spawn_file_actions_adddup2(&actions, fd, child_fd) == 0 && close_others(&actions, child_fd) == 0 &&
		rs_spawn(RS_REAL(posix_spawn), false, &s->pid, "/bin/sh", &actions, NULL, argv, environ, pc, frame) == 0) {
		s->file = file;
		s->next = open_streams;
		open_streams = s;
		__atomic_fetch_add(&open_count, 1, __ATOMIC_RELAXED);
		r = 0;
	}
	rs_latch_give(&lock);
	posix_spawn_file_actions_destroy(&actions);
	return r;
}

RS_EXPORT FILE *popen(const char *command, const char *mode)
{
	if (!rs_ctl || (!rs_env_preload && open_count == 0)) {
		rs_guard_out(RS_GUARD_LOST_PROCESS);
		FILE *f = RS_REAL(popen)(command, mode);
		rs_guard_in();
		return f;
	}
	bool read = false, write = false, cloexec = false;
	for (const char *m = mode; *m; m++) {
		if (*m == 'r')
			read = true;
		else if (*m == 'w')
			write = true;
		else if (*m == 'e')
			cloexec = true;
		else
			read = write = true;
	}
	if (read == write) {
		errno = EINVAL;
		return NULL;
	}
	struct stream *s = node();
	if (!s)
		return RS_REAL(popen)(command, mode); /* and its child goes without us */
	int fds[2];
	if (pipe2(fds, O_CLOEXEC) < 0) {
		give_back(s);
		return NULL;
	}
	int ours = fds[read ? 0 : 1], theirs = fds[read ? 1 : 0], child_fd = read ? 1 : 0;
	if (theirs == child_fd) {
		/* dup2 of a descriptor to itself would leave it close-on-exec. */
		int moved = fcntl(theirs, F_DUPFD_CLOEXEC, 0);
		if (moved >= 0)
			RS_PROGRAM1(SYS_close, theirs);
		theirs = moved;
	}
	FILE *file = theirs < 0 ? NULL : RS_REAL(fdopen)(ours, read ? "r" : "w");
	if (!file || start_shell(s, command, file, theirs, child_fd, RS_CALLER(), __builtin_frame_address(0)) < 0) {
		RS_PROGRAM1(SYS_close, theirs < 0 ? child_fd : theirs);
		if (file)
			RS_REAL(fclose)(file);
		else
			RS_PROGRAM1(SYS_close, ours);
		give_back(s);
		errno = ENOMEM;
		return NULL;
	}
	RS_PROGRAM1(SYS_close, theirs);
	rs_channel_forget(theirs);
	if (!cloexec) /* not counted as the program's; fdopen's F_GETFL is */
		RS_SYS3(SYS_fcntl, ours, F_SETFD, 0);
	return file;
}

/* The child of the stream, which is no longer in the list; 0 if it has none. */
static pid_t forget(FILE *file)
{
	pid_t pid = 0;
	rs_latch_take(&lock);
	for (struct stream **at = &open_streams; *at; at = &(*at)->next) {
		struct stream *s = *at;
		if (s->file != file)
			continue;
		pid = s->pid;
		*at = s->next;
		s->next = spare;
		spare = s;
		__atomic_fetch_sub(&open_count, 1, __ATOMIC_RELAXED);
		break;
	}
	rs_latch_give(&lock);
	return pid;
}

/* stdio closes by internal symbols: fd.c does not see it. Forgotten before: afterwards the number may be another thread's. */
static int close_file(FILE *file)
{
	if (RS_UNLIKELY(rs_config.all)) {
		rs_stream_writes(file);
		rs_channel_forget(file->_fileno);
	}
	return RS_REAL(fclose)(file);
}

/* Results as glibc's: the child's status unless it is 0, then whether the last write went well; -1 without waiting if the descriptor was
 * closed behind the stream's back. The wait is no cancellation point. */
static int close_stream(FILE *file)
{
	pid_t pid = forget(file);
	if (pid == 0)
		return close_file(file);
	bool gone = RS_SYS3(SYS_fcntl, file->_fileno, F_GETFD, 0) == -EBADF;
	int r = close_file(file);
	if (gone)
		return r;
	int status = 0, state, e = errno;
	pid_t waited;
	do {
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
		waited = RS_REAL(waitpid)(pid, &status, 0);
		pthread_setcancelstate(state, NULL);
	} while (waited < 0 && errno == EINTR);
	if (waited < 0)
		return -1;
	errno = e;
	struct rs_thread *t = rs_self();
	if (t && rs_config.all)
		rs_emit_wait(t, pid, status);
	return status ? status : r;
}

RS_EXPORT int fclose(FILE *file)
{
	if (RS_LIKELY(__atomic_load_n(&open_count, __ATOMIC_RELAXED) == 0))
		return close_file(file);
	return close_stream(file);
}

RS_EXPORT int pclose(FILE *file)
{
	if (__atomic_load_n(&open_count, __ATOMIC_RELAXED) == 0)
		return RS_REAL(pclose)(file);
	return close_stream(file);
}

RS_ALIAS(_IO_popen, popen);
RS_ALIAS(_IO_fclose, fclose);
