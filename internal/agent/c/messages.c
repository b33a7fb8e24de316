/* messages.c: functions of libc that write messages, to the standard error stream's descriptor or to the system's log: writes as stream.c has them. Where all accesses are told.
 *
 * Ground rules: as stream.c's. Not seen: error and error_at_line, whose arguments cannot be handed on.
 */
#include "called.h"
#include "fd.h"
#include <err.h>
#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <syslog.h>

static void tell_string(const struct rs_called *c, const char *s)
{
	if (c->t && s)
		rs_called_read(c, s, rs_length(s) + 1);
}

RS_TELLS(void, perror, (const char *s))
{
	RS_CALL(perror);
	tell_string(&c, s);
	rs_stream_writes(stderr);
	real_perror(s);
}

RS_TELLS(void, psignal, (int sig, const char *s))
{
	RS_CALL(psignal);
	tell_string(&c, s);
	rs_stream_writes(stderr);
	real_psignal(sig, s);
}

RS_TELLS(void, psiginfo, (const siginfo_t *i, const char *s))
{
	RS_CALL(psiginfo);
	rs_called_read(&c, i, sizeof *i);
	tell_string(&c, s);
	rs_stream_writes(stderr);
	real_psiginfo(i, s);
}

/* name by the function `by`, which takes a va_list, and by itself. */
#define MESSAGE(name, by, params, vparams, last, args, before, ...) \
	RS_TELLS(void, by, vparams) \
	{ \
		RS_NEED(by); \
		struct rs_called c = RS_CALLED(); \
		rs_format_prints(&c, s, false, v); \
		before; \
		real_##by args; \
		__VA_ARGS__; \
	} \
	RS_TOLD void name params; \
	RS_TOLD void name params \
	{ \
		RS_NEED(by); \
		va_list v; \
		va_start(v, last); \
		struct rs_called c = RS_CALLED(); \
		rs_format_prints(&c, s, false, v); \
		before; \
		real_##by args; \
		va_end(v); \
		__VA_ARGS__; \
	}
MESSAGE(warn, vwarn, (const char *s, ...), (const char *s, va_list v), s, (s, v), rs_stream_writes(stderr))
MESSAGE(warnx, vwarnx, (const char *s, ...), (const char *s, va_list v), s, (s, v), rs_stream_writes(stderr))
MESSAGE(err, verr, (int status, const char *s, ...), (int status, const char *s, va_list v), s, (status, s, v), rs_stream_writes(stderr), __builtin_unreachable())
MESSAGE(errx, verrx, (int status, const char *s, ...), (int status, const char *s, va_list v), s, (status, s, v), rs_stream_writes(stderr), __builtin_unreachable())

/* The log is a socket of libc's own with a name, LOG_PERROR writes to the standard error stream as well, which is not asked. */
static void logs(void)
{
	struct rs_thread *t = rs_fd_thread();
	int e = errno;
	if (t) {
		struct rs_channel c = rs_channel_named_socket();
		RS_EMIT(t, CHANNEL_RELEASE, channel_release, c.out, c.kind, ~0u);
		rs_stream_writes(stderr);
	}
	errno = e;
}
MESSAGE(syslog, vsyslog, (int how, const char *s, ...), (int how, const char *s, va_list v), s, (how, s, v), logs())
MESSAGE(__syslog_chk, __vsyslog_chk, (int how, int flag, const char *s, ...), (int how, int flag, const char *s, va_list v), s, (how, flag, s, v), logs())
