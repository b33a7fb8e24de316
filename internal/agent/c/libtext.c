/* libtext.c: functions that make numbers of strings, cut them up, compare them by the locale, sort: as libmem.c has those on memory and strings.
 *
 * How far a number was read is known by where it ended; white space in front of what is no number is not counted. bsearch reads nothing by itself: what the program's function compares is told there. */
#include "called.h"
#include <stdlib.h>
#include <wchar.h>

/* --- numbers ---------------------------------------------------------------------------------------------------------------- */

/* What was looked at to find that it ended at `end`, and what was said of that. */
static void tell_number(const struct rs_called *c, const void *s, size_t bytes, size_t unit, const void *to)
{
	rs_called_read(c, s, bytes + unit);
	if (to)
		rs_called_write(c, to, sizeof(void *));
}

/* Where libc has no such name only dlsym can ask for it, and `old` is as good. */
#define NUMBER(ret, name, old, type, more, ...) \
	RS_TELLS(ret, name, (const type *restrict s, type **restrict end more)) \
	{ \
		RS_CALL(name); \
		type *at = NULL; \
		ret r = (real_##name ? real_##name : real_##old)(s, &at, ##__VA_ARGS__); \
		if (!at) \
			return r; /* of a base that is none: nothing was looked at, nor said */ \
		tell_number(&c, s, (size_t)(at - s) * sizeof *s, sizeof *s, end); \
		if (end) \
			*end = at; \
		return r; \
	}
#define COMMA ,
#define INTEGERS(ret, name, wide) \
	NUMBER(ret, name, name, char, COMMA int base, base) \
	NUMBER(ret, wide, wide, wchar_t, COMMA int base, base) \
	NUMBER(ret, __isoc23_##name, name, char, COMMA int base, base) \
	NUMBER(ret, __isoc23_##wide, wide, wchar_t, COMMA int base, base)
INTEGERS(long, strtol, wcstol)
INTEGERS(unsigned long, strtoul, wcstoul)
INTEGERS(long long, strtoll, wcstoll)
INTEGERS(unsigned long long, strtoull, wcstoull)
NUMBER(float, strtof, strtof, char, )
NUMBER(double, strtod, strtod, char, )
NUMBER(long double, strtold, strtold, char, )
NUMBER(double, wcstod, wcstod, wchar_t, )

/* The same without saying where it ended (C17 7.22.1). */
#define BY(ret, name, by, ...) \
	RS_TELLS(ret, name, (const char *s)) \
	{ \
		RS_CALL(name); \
		RS_NEED(by); \
		if (!c.t) \
			return real_##name(s); \
		char *end = NULL; \
		ret r = (ret)real_##by(s, &end, ##__VA_ARGS__); \
		tell_number(&c, s, (size_t)(end - s), 1, NULL); \
		return r; \
	}
BY(int, atoi, strtol, 10)
BY(long, atol, strtol, 10)
BY(long long, atoll, strtoll, 10)
BY(double, atof, strtod)

/* --- pieces ------------------------------------------------------------------------------------------------------------------ */

/* A piece was found at r, which is ended now; the string it was cut from ended at `last`, where no end was written. */
static void tell_piece(const struct rs_called *c, const char *from, const char *r, const char *last)
{
	const char *end = r + rs_length(r);
	rs_called_read(c, from, (size_t)(end - from) + 1);
	if (end < last)
		rs_called_write(c, end, 1);
}

/* rest: where the caller keeps what is left. */
static char *tokenize(const struct rs_called *c, char *(*real)(char *, const char *, char **), char *s, const char *set, char **rest)
{
	if (!c->t)
		return real(s, set, rest);
	char *from = s ? s : *rest;
	if (!s)
		rs_called_read(c, rest, sizeof *rest);
	char *last = from ? from + rs_length(from) : NULL, *r = real(s, set, rest);
	if (r)
		tell_piece(c, from, r, last);
	else if (from)
		rs_called_read(c, from, (size_t)(last - from) + 1);
	rs_called_write(c, rest, sizeof *rest);
	return r;
}
#define TOKENIZE(name) \
	RS_TELLS(char *, name, (char *restrict s, const char *restrict set, char **restrict rest)) \
	{ \
		RS_CALL(name); \
		return tokenize(&c, real_##name, s, set, rest); \
	}
TOKENIZE(strtok_r)
TOKENIZE(__strtok_r)

/* What is left libc keeps where nobody finds it. All calls of the process come here, so it is kept here. */
static char *kept_by_strtok;
RS_TELLS(char *, strtok, (char *restrict s, const char *restrict set))
{
	RS_CALL(strtok);
	return tokenize(&c, real_strtok_r, s, set, &kept_by_strtok);
}

#define SEPARATE(name) \
	RS_TELLS(char *, name, (char **restrict s, const char *restrict set)) \
	{ \
		RS_CALL(name); \
		if (!c.t) \
			return real_##name(s, set); \
		rs_called_read(&c, s, sizeof *s); \
		const char *last = *s ? *s + rs_length(*s) : NULL; \
		char *r = real_##name(s, set); \
		if (r) { \
			tell_piece(&c, r, r, last); \
			rs_called_write(&c, s, sizeof *s); \
		} \
		return r; \
	}
SEPARATE(strsep)

/* --- by the locale ------------------------------------------------------------------------------------------------------------ */

/* Of both strings at least what differs first. */
RS_TELLS(int, strcoll, (const char *a, const char *b))
{
	RS_CALL(strcoll);
	int r = real_strcoll(a, b);
	if (c.t) {
		size_t n = 0;
		while (a[n] && a[n] == b[n])
			n++;
		rs_called_read(&c, a, n + 1);
		rs_called_read(&c, b, n + 1);
	}
	return r;
}

RS_TELLS(size_t, strxfrm, (char *restrict to, const char *restrict from, size_t n))
{
	RS_CALL(strxfrm);
	size_t r = real_strxfrm(to, from, n);
	if (c.t) {
		rs_called_read(&c, from, rs_length(from) + 1);
		if (r < n)
			rs_called_write(&c, to, r + 1);
	}
	return r;
}

/* --- sorting ------------------------------------------------------------------------------------------------------------------ */

/* All elements may change their places, so all are written, before what the program's function does to them. */
RS_TELLS(void, qsort, (void *p, size_t n, size_t size, int (*compare)(const void *, const void *)))
{
	RS_CALL(qsort);
	rs_called_write(&c, p, n > 1 ? n * size : 0);
	real_qsort(p, n, size, compare);
}

RS_TELLS(void, qsort_r, (void *p, size_t n, size_t size, int (*compare)(const void *, const void *, void *), void *arg))
{
	RS_CALL(qsort_r);
	rs_called_write(&c, p, n > 1 ? n * size : 0);
	real_qsort_r(p, n, size, compare, arg);
}

/* --- wide strings ------------------------------------------------------------------------------------------------------------- */

static size_t length(const wchar_t *s, size_t n)
{
	size_t i = 0;
	while (i < n && s[i])
		i++;
	return i;
}

static void tell_wide(const struct rs_called *c, const wchar_t *s, size_t n) { rs_called_read(c, s, n * sizeof *s); }
/* A string of which at most n characters are looked at, with its end. */
static void tell_string(const struct rs_called *c, const wchar_t *s, size_t n)
{
	if (c->t) {
		size_t len = length(s, n);
		tell_wide(c, s, len < n ? len + 1 : n);
	}
}

static void tell_compared(const struct rs_called *c, const wchar_t *a, const wchar_t *b, size_t n)
{
	size_t i = 0;
	if (!c->t)
		return;
	while (i < n && a[i] && a[i] == b[i])
		i++;
	tell_wide(c, a, i < n ? i + 1 : n);
	tell_wide(c, b, i < n ? i + 1 : n);
}

RS_TELLS(size_t, wcsnlen, (const wchar_t *s, size_t n))
{
	RS_CALL(wcsnlen);
	tell_string(&c, s, n);
	return real_wcsnlen(s, n);
}

RS_TELLS(int, wcscmp, (const wchar_t *a, const wchar_t *b))
{
	RS_CALL(wcscmp);
	int r = real_wcscmp(a, b);
	tell_compared(&c, a, b, SIZE_MAX);
	return r;
}

RS_TELLS(int, wcsncmp, (const wchar_t *a, const wchar_t *b, size_t n))
{
	RS_CALL(wcsncmp);
	int r = real_wcsncmp(a, b, n);
	tell_compared(&c, a, b, n);
	return r;
}

RS_TELLS(wchar_t *, wcschr, (const wchar_t *s, wchar_t x))
{
	RS_CALL(wcschr);
	wchar_t *r = real_wcschr(s, x);
	if (r)
		tell_wide(&c, s, (size_t)(r - s) + 1);
	else
		tell_string(&c, s, SIZE_MAX);
	return r;
}

RS_TELLS(wchar_t *, wcsrchr, (const wchar_t *s, wchar_t x))
{
	RS_CALL(wcsrchr);
	tell_string(&c, s, SIZE_MAX);
	return real_wcsrchr(s, x);
}

RS_TELLS(wchar_t *, wcscat, (wchar_t *restrict to, const wchar_t *restrict from))
{
	RS_CALL(wcscat);
	if (c.t) {
		size_t at = length(to, SIZE_MAX);
		tell_wide(&c, to, at + 1);
		rs_called_copy(&c, to + at, from, (length(from, SIZE_MAX) + 1) * sizeof *to);
	}
	return real_wcscat(to, from);
}

RS_TELLS(wchar_t *, wcsncpy, (wchar_t *restrict to, const wchar_t *restrict from, size_t n))
{
	RS_CALL(wcsncpy);
	tell_string(&c, from, n);
	rs_called_write(&c, to, n * sizeof *to);
	return real_wcsncpy(to, from, n);
}

RS_TELLS(wchar_t *, wcsdup, (const wchar_t *s))
{
	RS_CALL(wcsdup);
	wchar_t *r = real_wcsdup(s);
	if (r && c.t)
		rs_called_copy(&c, r, s, (length(r, SIZE_MAX) + 1) * sizeof *r);
	return r;
}
