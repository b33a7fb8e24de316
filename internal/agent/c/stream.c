/* stream.c: stdio as a channel. libc's own read and write are not seen, so each call that may write what lies in a stream releases the channel behind it, before the call, and each that may fill a stream's buffer acquires it,
 * after the call. That is more order than there is: a call that only puts a byte into the buffer releases as well, since whoever writes the buffer later hands over what was done before; and one that finds its byte
 * in the buffer takes what was given up to now. Where all accesses are told.
 *
 * Streams of terminals and other devices order nothing: what is printed on one does not come back by reading it.
 *
 * Ground rules: nothing is held across the real call, no stream is locked, nothing of it is read but the descriptor; errno is the real call's. A stream of memory or of a program's own functions has no descriptor.
 *
 * messages.c has what writes messages. Not seen: a read that has stdout written because it waits for a terminal.
 */
#include "called.h"
#include "fd.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <wchar.h>

/* Macros of glibc's headers. */
#undef getc
#undef putc
#undef getwc
#undef putwc
#undef getc_unlocked
#undef putc_unlocked
#undef getwc_unlocked
#undef putwc_unlocked
#undef fgetc_unlocked
#undef fputc_unlocked
#undef fflush_unlocked
#undef getchar_unlocked
#undef putchar_unlocked
#undef getwchar_unlocked
#undef putwchar_unlocked

static uint64_t written[RS_FD_PLACES / 64]; /* by descriptor: a stream of it was written to */

static struct rs_channel channel(int fd)
{
	struct rs_channel c = rs_channel_of(fd);
	if (c.kind == RS_CHANNEL_TTY)
		c.kind = 0;
	return c;
}

static void write_to(struct rs_thread *t, int fd)
{
	struct rs_channel c = channel(fd);
	if (!rs_channel_orders(c))
		return;
	if (fd < RS_FD_PLACES && !(__atomic_load_n(&written[fd / 64], __ATOMIC_RELAXED) >> fd % 64 & 1))
		__atomic_fetch_or(&written[fd / 64], 1ull << fd % 64, __ATOMIC_RELAXED);
	RS_EMIT(t, CHANNEL_RELEASE, channel_release, c.out, c.kind, (uint32_t)fd);
}

/* What write_to has of numbers that mean something else by now is more order. */
static void write_all(struct rs_thread *t)
{
	for (unsigned i = 0; i < RS_FD_PLACES / 64; i++)
		for (uint64_t some = __atomic_load_n(&written[i], __ATOMIC_RELAXED); some; some &= some - 1)
			write_to(t, (int)(i * 64) + __builtin_ctzll(some));
}

void rs_stream_writes(FILE *f)
{
	struct rs_thread *t = rs_fd_thread();
	if (!t)
		return;
	int e = errno;
	rs_watch_changes();
	if (f)
		write_to(t, f->_fileno);
	else
		write_all(t);
	errno = e;
}

void rs_stream_reads(FILE *f)
{
	struct rs_thread *t = rs_fd_thread();
	if (!t)
		return;
	int e = errno;
	struct rs_channel c = channel(f->_fileno);
	if (rs_channel_orders(c))
		RS_EMIT(t, CHANNEL_ACQUIRE, channel_acquire, c.in, c.kind, (uint32_t)f->_fileno);
	errno = e;
}

static void descriptor_writes(int fd)
{
	struct rs_thread *t = rs_fd_thread();
	int e = errno;
	if (t) {
		rs_watch_changes();
		write_to(t, fd);
	}
	errno = e;
}

#define WRITES(ret, name, params, args, f) \
	RS_TELLS(ret, name, params) \
	{ \
		RS_NEED(name); \
		rs_stream_writes(f); \
		return real_##name args; \
	}
#define READS(ret, name, params, args, f) \
	RS_TELLS(ret, name, params) \
	{ \
		RS_NEED(name); \
		rs_watch_changes(); \
		ret r = real_##name args; \
		rs_stream_reads(f); \
		return r; \
	}

/* --- characters ------------------------------------------------------------------------------------------------------------ */

#define PUT(ret, name, type) WRITES(ret, name, (type c, FILE * f), (c, f), f)
#define GET(ret, name) READS(ret, name, (FILE * f), (f), f)
PUT(int, fputc, int)
PUT(int, putc, int)
PUT(int, _IO_putc, int)
PUT(int, fputc_unlocked, int)
PUT(int, putc_unlocked, int)
PUT(int, putw, int)
PUT(wint_t, fputwc, wchar_t)
PUT(wint_t, putwc, wchar_t)
PUT(wint_t, fputwc_unlocked, wchar_t)
PUT(wint_t, putwc_unlocked, wchar_t)
WRITES(int, putchar, (int c), (c), stdout)
WRITES(int, putchar_unlocked, (int c), (c), stdout)
WRITES(wint_t, putwchar, (wchar_t c), (c), stdout)
WRITES(wint_t, putwchar_unlocked, (wchar_t c), (c), stdout)
WRITES(int, fputws, (const wchar_t *s, FILE *f), (s, f), f)
WRITES(int, fputws_unlocked, (const wchar_t *s, FILE *f), (s, f), f)
GET(int, fgetc)
GET(int, getc)
GET(int, _IO_getc)
GET(int, fgetc_unlocked)
GET(int, getc_unlocked)
GET(int, getw)
GET(wint_t, fgetwc)
GET(wint_t, getwc)
GET(wint_t, fgetwc_unlocked)
GET(wint_t, getwc_unlocked)
READS(int, getchar, (void), (), stdin)
READS(int, getchar_unlocked, (void), (), stdin)
READS(wint_t, getwchar, (void), (), stdin)
READS(wint_t, getwchar_unlocked, (void), (), stdin)
READS(wchar_t *, fgetws, (wchar_t * s, int n, FILE *f), (s, n, f), f)
READS(wchar_t *, fgetws_unlocked, (wchar_t * s, int n, FILE *f), (s, n, f), f)
READS(wchar_t *, __fgetws_chk, (wchar_t * s, size_t room, int n, FILE *f), (s, room, n, f), f)
READS(wchar_t *, __fgetws_unlocked_chk, (wchar_t * s, size_t room, int n, FILE *f), (s, room, n, f), f)
/* What the macros of getc_unlocked and putc_unlocked call when the buffer is empty or full. */
WRITES(int, __overflow, (FILE * f, int c), (f, c), f)
GET(int, __uflow)
GET(int, __underflow)
GET(wint_t, __wuflow)
GET(wint_t, __wunderflow)
WRITES(wint_t, __woverflow, (FILE * f, wint_t c), (f, c), f)

/* --- formats --------------------------------------------------------------------------------------------------------------- */

/* name, and by, which takes a va_list. before: f is what it prints to. */
#define PRINT(name, by, wide, params, vparams, last, args, before) \
	RS_TELLS(int, by, vparams) \
	{ \
		RS_NEED(by); \
		struct rs_called c = RS_CALLED(); \
		rs_format_prints(&c, s, wide, v); \
		before; \
		return real_##by args; \
	} \
	RS_TOLD int name params; \
	RS_TOLD int name params \
	{ \
		RS_NEED(by); \
		struct rs_called c = RS_CALLED(); \
		va_list v; \
		va_start(v, last); \
		rs_format_prints(&c, s, wide, v); \
		before; \
		int r = real_##by args; \
		va_end(v); \
		return r; \
	}
#define PRINTS(type, wide, print, vprint, fprint, vfprint, print_chk, vprint_chk, fprint_chk, vfprint_chk) \
	PRINT(fprint, vfprint, wide, (FILE * f, const type *s, ...), (FILE * f, const type *s, va_list v), s, (f, s, v), rs_stream_writes(f)) \
	PRINT(print, vprint, wide, (const type *s, ...), (const type *s, va_list v), s, (s, v), rs_stream_writes(stdout)) \
	PRINT(fprint_chk, vfprint_chk, wide, (FILE * f, int flag, const type *s, ...), (FILE * f, int flag, const type *s, va_list v), s, (f, flag, s, v), rs_stream_writes(f)) \
	PRINT(print_chk, vprint_chk, wide, (int flag, const type *s, ...), (int flag, const type *s, va_list v), s, (flag, s, v), rs_stream_writes(stdout))
PRINTS(char, false, printf, vprintf, fprintf, vfprintf, __printf_chk, __vprintf_chk, __fprintf_chk, __vfprintf_chk)
PRINTS(wchar_t, true, wprintf, vwprintf, fwprintf, vfwprintf, __wprintf_chk, __vwprintf_chk, __fwprintf_chk, __vfwprintf_chk)
PRINT(dprintf, vdprintf, false, (int fd, const char *s, ...), (int fd, const char *s, va_list v), s, (fd, s, v), descriptor_writes(fd))
PRINT(__dprintf_chk, __vdprintf_chk, false, (int fd, int flag, const char *s, ...), (int fd, int flag, const char *s, va_list v), s, (fd, flag, s, v), descriptor_writes(fd))

/* stdio.h gives C's names to C99's functions by asm names, so all are defined by them. */
#define NAMED(ret, name, params) \
	static ret(*real_##name) params; \
	static const struct rs_called_real real_row_##name = {#name, (void **)&real_##name}; \
	static const struct rs_called_real *const real_at_##name __attribute__((section("rs_called_reals"), used)) = &real_row_##name; \
	RS_TOLD ret rs_##name params __asm__(#name); \
	RS_TOLD ret rs_##name params
/* name, and by, which takes a va_list. of: one that is as good where libc has no such name, which only dlsym can ask for then. from: what is read. */
#define SCAN(name, by, how, params, vparams, last, args, of, from) \
	NAMED(int, by, vparams) \
	{ \
		RS_NEED(by); \
		struct rs_called c = RS_CALLED(); \
		va_list w; \
		va_copy(w, v); \
		rs_watch_changes(); \
		int r = (real_##by ? real_##by : of) args; \
		from; \
		rs_format_scanned(&c, s, how, w, r); \
		va_end(w); \
		return r; \
	} \
	RS_TOLD int rs_##name params __asm__(#name); \
	RS_TOLD int rs_##name params \
	{ \
		RS_NEED(by); \
		struct rs_called c = RS_CALLED(); \
		va_list v; \
		va_start(v, last); \
		rs_watch_changes(); \
		int r = (real_##by ? real_##by : of) args; \
		va_end(v); \
		from; \
		va_start(v, last); \
		rs_format_scanned(&c, s, how, v, r); \
		va_end(v); \
		return r; \
	}
/* A string is looked through to its end, whatever is made of it. */
#define SCANS(type, how, scan, vscan, fscan, vfscan, sscan, vsscan, old_vscan, old_vfscan, old_vsscan) \
	SCAN(fscan, vfscan, how, (FILE * f, const type *s, ...), (FILE * f, const type *s, va_list v), s, (f, s, v), real_##old_vfscan, rs_stream_reads(f)) \
	SCAN(scan, vscan, how, (const type *s, ...), (const type *s, va_list v), s, (s, v), real_##old_vscan, rs_stream_reads(stdin)) \
	SCAN(sscan, vsscan, how, (const type *in, const type *s, ...), (const type *in, const type *s, va_list v), s, (in, s, v), real_##old_vsscan, rs_format_reads(&c, in, how & RS_FORMAT_WIDE))
SCANS(char, RS_FORMAT_OLD, scanf, vscanf, fscanf, vfscanf, sscanf, vsscanf, vscanf, vfscanf, vsscanf)
SCANS(char, 0, __isoc99_scanf, __isoc99_vscanf, __isoc99_fscanf, __isoc99_vfscanf, __isoc99_sscanf, __isoc99_vsscanf, vscanf, vfscanf, vsscanf)
SCANS(char, 0, __isoc23_scanf, __isoc23_vscanf, __isoc23_fscanf, __isoc23_vfscanf, __isoc23_sscanf, __isoc23_vsscanf, __isoc99_vscanf, __isoc99_vfscanf, __isoc99_vsscanf)
SCANS(wchar_t, (RS_FORMAT_WIDE | RS_FORMAT_OLD), wscanf, vwscanf, fwscanf, vfwscanf, swscanf, vswscanf, vwscanf, vfwscanf, vswscanf)
SCANS(wchar_t, RS_FORMAT_WIDE, __isoc99_wscanf, __isoc99_vwscanf, __isoc99_fwscanf, __isoc99_vfwscanf, __isoc99_swscanf, __isoc99_vswscanf, vwscanf, vfwscanf, vswscanf)
SCANS(wchar_t, RS_FORMAT_WIDE, __isoc23_wscanf, __isoc23_vwscanf, __isoc23_fwscanf, __isoc23_vfwscanf, __isoc23_swscanf, __isoc23_vswscanf, __isoc99_vwscanf, __isoc99_vfwscanf, __isoc99_vswscanf)

/* --- flushing, seeking, opening -------------------------------------------------------------------------------------------- */

WRITES(int, fflush, (FILE * f), (f), f)
WRITES(int, fflush_unlocked, (FILE * f), (f), f)
WRITES(int, fcloseall, (void), (), NULL)
WRITES(int, fseek, (FILE * f, long to, int from), (f, to, from), f)
WRITES(int, fseeko, (FILE * f, off_t to, int from), (f, to, from), f)
WRITES(int, fseeko64, (FILE * f, off64_t to, int from), (f, to, from), f)
WRITES(int, fsetpos, (FILE * f, const fpos_t *at), (f, at), f)
WRITES(int, fsetpos64, (FILE * f, const fpos64_t *at), (f, at), f)
RS_TELLS(void, rewind, (FILE * f))
{
	RS_NEED(rewind);
	rs_stream_writes(f);
	real_rewind(f);
}

/* The descriptor is a new one, which libc's own open made. */
static FILE *opened(FILE *f)
{
	if (f) {
		rs_channel_forget(f->_fileno);
		rs_channel_locks(f->_fileno, 0, RS_LOCKS_KNOWN);
	}
	return f;
}
#define OPEN(name, params, args) \
	RS_TELLS(FILE *, name, params) \
	{ \
		RS_NEED(name); \
		rs_watch_changes(); \
		return opened(real_##name args); \
	}
OPEN(fopen, (const char *path, const char *mode), (path, mode))
OPEN(fopen64, (const char *path, const char *mode), (path, mode))
OPEN(tmpfile, (void), ())
OPEN(tmpfile64, (void), ())
#define OPEN_AGAIN(name) \
	RS_TELLS(FILE *, name, (const char *path, const char *mode, FILE *f)) \
	{ \
		RS_NEED(name); \
		rs_stream_writes(f); \
		rs_channel_forget(f->_fileno); \
		return opened(real_##name(path, mode, f)); \
	}
OPEN_AGAIN(freopen)
OPEN_AGAIN(freopen64)
