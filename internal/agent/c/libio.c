/* libio.c: functions of stdio that read or write their callers' buffers and strings (called.h). What they do to the FILE is theirs; what they hand over by it is stream.c's.
 *
 * What they write is told when they have returned, as only then it is known how much. Of strings that a format asks for: format.c. */
#include "called.h"
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <wchar.h>

/* glibc has these as macros, too. */
#undef fread_unlocked
#undef fwrite_unlocked

/* A part of the last element may have come, too, which nobody is told of: it is left out. */
#define READ(name) \
	RS_TELLS(size_t, name, (void *p, size_t size, size_t n, FILE *f)) \
	{ \
		RS_CALL(name); \
		size_t r = real_##name(p, size, n, f); \
		rs_stream_reads(f); \
		rs_called_write(&c, p, r * size); \
		return r; \
	}
READ(fread)
READ(fread_unlocked)

#define READ_CHECKED(name) \
	RS_TELLS(size_t, name, (void *p, size_t room, size_t size, size_t n, FILE *f)) \
	{ \
		RS_CALL(name); \
		size_t r = real_##name(p, room, size, n, f); \
		rs_stream_reads(f); \
		rs_called_write(&c, p, r * size); \
		return r; \
	}
READ_CHECKED(__fread_chk)
READ_CHECKED(__fread_unlocked_chk)

/* Read before the call, which may write to a descriptor. */
#define WRITE(name) \
	RS_TELLS(size_t, name, (const void *p, size_t size, size_t n, FILE *f)) \
	{ \
		RS_CALL(name); \
		rs_called_read(&c, p, size * n); \
		rs_stream_writes(f); \
		return real_##name(p, size, n, f); \
	}
WRITE(fwrite)
WRITE(fwrite_unlocked)

#define LINE(name) \
	RS_TELLS(char *, name, (char *p, int n, FILE *f)) \
	{ \
		RS_CALL(name); \
		char *r = real_##name(p, n, f); \
		rs_stream_reads(f); \
		if (r && c.t) \
			rs_called_write(&c, p, rs_length(p) + 1); \
		return r; \
	}
LINE(fgets)
LINE(fgets_unlocked)
#define LINE_CHECKED(name) \
	RS_TELLS(char *, name, (char *p, size_t room, int n, FILE *f)) \
	{ \
		RS_CALL(name); \
		char *r = real_##name(p, room, n, f); \
		rs_stream_reads(f); \
		if (r && c.t) \
			rs_called_write(&c, p, rs_length(p) + 1); \
		return r; \
	}
LINE_CHECKED(__fgets_chk)
LINE_CHECKED(__fgets_unlocked_chk)

#define DELIMITED(name) \
	RS_TELLS(ssize_t, name, (char **p, size_t *n, int end, FILE *f)) \
	{ \
		RS_CALL(name); \
		rs_called_read(&c, p, sizeof *p); \
		rs_called_read(&c, n, sizeof *n); \
		ssize_t r = real_##name(p, n, end, f); \
		rs_stream_reads(f); \
		if (r >= 0 && c.t) \
			rs_called_write(&c, *p, (size_t)r + 1); \
		return r; \
	}
DELIMITED(getdelim)
DELIMITED(__getdelim)

RS_TELLS(ssize_t, getline, (char **p, size_t *n, FILE *f))
{
	RS_CALL(getline);
	rs_called_read(&c, p, sizeof *p);
	rs_called_read(&c, n, sizeof *n);
	ssize_t r = real_getline(p, n, f);
	rs_stream_reads(f);
	if (r >= 0 && c.t)
		rs_called_write(&c, *p, (size_t)r + 1);
	return r;
}

#define PUT(name) \
	RS_TELLS(int, name, (const char *s, FILE *f)) \
	{ \
		RS_CALL(name); \
		if (c.t) \
			rs_called_read(&c, s, rs_length(s) + 1); \
		rs_stream_writes(f); \
		return real_##name(s, f); \
	}
PUT(fputs)
PUT(fputs_unlocked)

RS_TELLS(int, puts, (const char *s))
{
	RS_CALL(puts);
	if (c.t)
		rs_called_read(&c, s, rs_length(s) + 1);
	rs_stream_writes(stdout);
	return real_puts(s);
}

/* --- formatted into memory --------------------------------------------------------------------------------------------------------------------- */

/* r elements and an end, as far as there is room. */
static int printed(const struct rs_called *c, const void *p, size_t room, int r, size_t size)
{
	if (r >= 0 && room)
		rs_called_write(c, p, ((size_t)r < room ? (size_t)r + 1 : room) * size);
	return r;
}

/* name, and by, which takes a va_list. n: the room for elements of type at p. */
#define PRINT(type, name, by, params, vparams, args, n) \
	RS_TELLS(int, by, vparams) \
	{ \
		RS_CALL(by); \
		rs_format_prints(&c, format, sizeof(type) > 1, v); \
		return printed(&c, p, n, real_##by args, sizeof(type)); \
	} \
	RS_TOLD int name params; \
	RS_TOLD int name params \
	{ \
		RS_NEED(by); \
		RS_OPENS(); \
		struct rs_called c = RS_CALLED(); \
		va_list v; \
		va_start(v, format); \
		rs_format_prints(&c, format, sizeof(type) > 1, v); \
		int r = real_##by args; \
		va_end(v); \
		return printed(&c, p, n, r, sizeof(type)); \
	}
PRINT(char, snprintf, vsnprintf, (char *p, size_t n, const char *format, ...), (char *p, size_t n, const char *format, va_list v), (p, n, format, v), n)
PRINT(char, sprintf, vsprintf, (char *p, const char *format, ...), (char *p, const char *format, va_list v), (p, format, v), SIZE_MAX)
PRINT(char, __snprintf_chk, __vsnprintf_chk, (char *p, size_t n, int flag, size_t room, const char *format, ...), (char *p, size_t n, int flag, size_t room, const char *format, va_list v), (p, n, flag, room, format, v), n)
PRINT(char, __sprintf_chk, __vsprintf_chk, (char *p, int flag, size_t room, const char *format, ...), (char *p, int flag, size_t room, const char *format, va_list v), (p, flag, room, format, v), SIZE_MAX)
PRINT(wchar_t, swprintf, vswprintf, (wchar_t *p, size_t n, const wchar_t *format, ...), (wchar_t *p, size_t n, const wchar_t *format, va_list v), (p, n, format, v), n)
PRINT(wchar_t, __swprintf_chk, __vswprintf_chk, (wchar_t *p, size_t n, int flag, size_t room, const wchar_t *format, ...), (wchar_t *p, size_t n, int flag, size_t room, const wchar_t *format, va_list v), (p, n, flag, room, format, v), n)
/* A new block: what lies in it is nobody else's. */
#define ALLOCATED(r) (r < 0 ? r : (rs_called_write(&c, p, sizeof *p), r))
#define PRINT_NEW(name, by, params, vparams, args) \
	RS_TELLS(int, by, vparams) \
	{ \
		RS_CALL(by); \
		rs_format_prints(&c, format, false, v); \
		int r = real_##by args; \
		return ALLOCATED(r); \
	} \
	RS_TOLD int name params; \
	RS_TOLD int name params \
	{ \
		RS_NEED(by); \
		RS_OPENS(); \
		struct rs_called c = RS_CALLED(); \
		va_list v; \
		va_start(v, format); \
		rs_format_prints(&c, format, false, v); \
		int r = real_##by args; \
		va_end(v); \
		return ALLOCATED(r); \
	}
PRINT_NEW(asprintf, vasprintf, (char **p, const char *format, ...), (char **p, const char *format, va_list v), (p, format, v))
PRINT_NEW(__asprintf_chk, __vasprintf_chk, (char **p, int flag, const char *format, ...), (char **p, int flag, const char *format, va_list v), (p, flag, format, v))

/* The descriptor belongs to the stream from now on, whose end is not seen. */
RS_TELLS(FILE *, fdopen, (int fd, const char *mode))
{
	RS_NEED(fdopen);
	FILE *f = real_fdopen(fd, mode);
	if (f)
		rs_fd_unknown(fd);
	return f;
}

RS_TELLS(DIR *, fdopendir, (int fd))
{
	RS_NEED(fdopendir);
	DIR *d = real_fdopendir(fd);
	if (d)
		rs_fd_unknown(fd);
	return d;
}
