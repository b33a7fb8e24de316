/* libmem.c: functions on memory and strings, whose accesses are the caller's (called.h).
 *
 * What is told are the bytes that the C standard has a function look at: up to the first difference, the byte that is sought, the end. How far that is, is known when the function has returned,
 * or asked for by another function before. strcmp and strncmp are made here, so that nobody changes the strings between the comparison and the look at how far it went. */
#include "called.h"
#include <wchar.h>

/* --- how far ---------------------------------------------------------------------------------------------------------------------------- */

static size_t length_within(const char *s, size_t n)
{
	size_t i = 0;
	while (i < n && s[i])
		i++;
	return i;
}

static size_t wide_length(const wchar_t *s)
{
	size_t i = 0;
	while (s[i])
		i++;
	return i;
}

/* Of a string of which at most n bytes are looked at, with its end. */
static size_t looked(size_t len, size_t n) { return len < n ? len + 1 : n; }

/* How many bytes are looked at to compare n. */
static size_t compared(const unsigned char *a, const unsigned char *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (a[i] != b[i])
			return i + 1;
	return n;
}

static unsigned char folded(unsigned char x) { return x >= 'A' && x <= 'Z' ? x | 32 : x; }

/* The same of strings without regard to case, if it is ASCII; else perhaps fewer. */
static size_t compared_folded(const unsigned char *a, const unsigned char *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!a[i] || folded(a[i]) != folded(b[i]))
			return i + 1;
	return n;
}

/* --- memory -------------------------------------------------------------------------------------------------------------------------------- */

/* memcpy of programs linked before glibc 2.14 is memmove; to do that for all is right for all. */
RS_TELLS(void *, memmove, (void *to, const void *from, size_t n))
{
	RS_CALL(memmove);
	rs_called_copy(&c, to, from, n);
	return real_memmove(to, from, n);
}

RS_TELLS(void *, memcpy, (void *to, const void *from, size_t n))
{
	RS_CALL(memcpy);
	RS_NEED(memmove);
	rs_called_copy(&c, to, from, n);
	return real_memmove(to, from, n);
}

#define COPY(name) \
	RS_TELLS(void *, name, (void *to, const void *from, size_t n)) \
	{ \
		RS_CALL(name); \
		rs_called_copy(&c, to, from, n); \
		return real_##name(to, from, n); \
	}
COPY(mempcpy)
COPY(__mempcpy)

/* What is too long is not done, and ends the program. */
#define COPY_CHECKED(name) \
	RS_TELLS(void *, name, (void *to, const void *from, size_t n, size_t room)) \
	{ \
		RS_CALL(name); \
		rs_called_copy(&c, to, from, n <= room ? n : 0); \
		return real_##name(to, from, n, room); \
	}
COPY_CHECKED(__memcpy_chk)
COPY_CHECKED(__memmove_chk)
COPY_CHECKED(__mempcpy_chk)

RS_TELLS(void, bcopy, (const void *from, void *to, size_t n))
{
	RS_CALL(bcopy);
	rs_called_copy(&c, to, from, n);
	real_bcopy(from, to, n);
}

#define WIDE_COPY(name) \
	RS_TELLS(wchar_t *, name, (wchar_t * to, const wchar_t *from, size_t n)) \
	{ \
		RS_CALL(name); \
		rs_called_copy(&c, to, from, n * sizeof *to); \
		return real_##name(to, from, n); \
	}
WIDE_COPY(wmemcpy)
WIDE_COPY(wmemmove)
WIDE_COPY(wmempcpy)
#define WIDE_COPY_CHECKED(name) \
	RS_TELLS(wchar_t *, name, (wchar_t * to, const wchar_t *from, size_t n, size_t room)) \
	{ \
		RS_CALL(name); \
		rs_called_copy(&c, to, from, n <= room ? n * sizeof *to : 0); \
		return real_##name(to, from, n, room); \
	}
WIDE_COPY_CHECKED(__wmemcpy_chk)
WIDE_COPY_CHECKED(__wmemmove_chk)
WIDE_COPY_CHECKED(__wmempcpy_chk)

RS_TELLS(void *, memset, (void *p, int x, size_t n))
{
	RS_CALL(memset);
	rs_called_write(&c, p, n);
	return real_memset(p, x, n);
}

RS_TELLS(void *, __memset_chk, (void *p, int x, size_t n, size_t room))
{
	RS_CALL(__memset_chk);
	rs_called_write(&c, p, n <= room ? n : 0);
	return real___memset_chk(p, x, n, room);
}

#define CLEAR(name) \
	RS_TELLS(void, name, (void *p, size_t n)) \
	{ \
		RS_CALL(name); \
		rs_called_write(&c, p, n); \
		real_##name(p, n); \
	}
CLEAR(bzero)
CLEAR(__bzero)
CLEAR(explicit_bzero)

RS_TELLS(void, __explicit_bzero_chk, (void *p, size_t n, size_t room))
{
	RS_CALL(__explicit_bzero_chk);
	rs_called_write(&c, p, n <= room ? n : 0);
	real___explicit_bzero_chk(p, n, room);
}

RS_TELLS(wchar_t *, wmemset, (wchar_t * p, wchar_t x, size_t n))
{
	RS_CALL(wmemset);
	rs_called_write(&c, p, n * sizeof *p);
	return real_wmemset(p, x, n);
}

RS_TELLS(wchar_t *, __wmemset_chk, (wchar_t * p, wchar_t x, size_t n, size_t room))
{
	RS_CALL(__wmemset_chk);
	rs_called_write(&c, p, n <= room ? n * sizeof *p : 0);
	return real___wmemset_chk(p, x, n, room);
}

#define COMPARE(name) \
	RS_TELLS(int, name, (const void *a, const void *b, size_t n)) \
	{ \
		RS_CALL(name); \
		int r = real_##name(a, b, n); \
		if (c.t) { \
			size_t k = r ? compared(a, b, n) : n; \
			rs_called_read(&c, a, k); \
			rs_called_read(&c, b, k); \
		} \
		return r; \
	}
COMPARE(memcmp)
COMPARE(bcmp)
COMPARE(__memcmpeq)

RS_TELLS(int, wmemcmp, (const wchar_t *a, const wchar_t *b, size_t n))
{
	RS_CALL(wmemcmp);
	int r = real_wmemcmp(a, b, n);
	if (c.t) {
		size_t k = 0;
		while (k < n && a[k] == b[k])
			k++;
		k = (k < n ? k + 1 : n) * sizeof *a;
		rs_called_read(&c, a, k);
		rs_called_read(&c, b, k);
	}
	return r;
}

RS_TELLS(void *, memchr, (const void *p, int x, size_t n))
{
	RS_CALL(memchr);
	char *r = real_memchr(p, x, n);
	rs_called_read(&c, p, r ? (size_t)(r - (const char *)p) + 1 : n);
	return r;
}

#define LAST_IN_MEMORY(name) \
	RS_TELLS(void *, name, (const void *p, int x, size_t n)) \
	{ \
		RS_CALL(name); \
		char *r = real_##name(p, x, n); \
		const char *from = r ? r : p; \
		rs_called_read(&c, from, (size_t)((const char *)p + n - from)); \
		return r; \
	}
LAST_IN_MEMORY(memrchr)

#define ALWAYS_IN_MEMORY(name) \
	RS_TELLS(void *, name, (const void *p, int x)) \
	{ \
		RS_CALL(name); \
		char *r = real_##name(p, x); \
		rs_called_read(&c, p, (size_t)(r - (const char *)p) + 1); \
		return r; \
	}
ALWAYS_IN_MEMORY(rawmemchr)
ALWAYS_IN_MEMORY(__rawmemchr)

RS_TELLS(wchar_t *, wmemchr, (const wchar_t *p, wchar_t x, size_t n))
{
	RS_CALL(wmemchr);
	wchar_t *r = real_wmemchr(p, x, n);
	rs_called_read(&c, p, (r ? (size_t)(r - p) + 1 : n) * sizeof *p);
	return r;
}

RS_TELLS(void *, memmem, (const void *p, size_t n, const void *part, size_t m))
{
	RS_CALL(memmem);
	char *r = real_memmem(p, n, part, m);
	if (m && m <= n) {
		rs_called_read(&c, p, r ? (size_t)(r - (const char *)p) + m : n);
		rs_called_read(&c, part, r ? m : 1);
	}
	return r;
}

RS_TELLS(void *, memccpy, (void *to, const void *from, int x, size_t n))
{
	RS_CALL(memccpy);
	char *r = real_memccpy(to, from, x, n);
	rs_called_copy(&c, to, from, r ? (size_t)(r - (char *)to) : n);
	return r;
}

/* --- strings ------------------------------------------------------------------------------------------------------------------------------------ */

RS_TELLS(size_t, strlen, (const char *s))
{
	RS_CALL(strlen);
	size_t r = real_strlen(s);
	rs_called_read(&c, s, r + 1);
	return r;
}

#define LENGTH_WITHIN(name) \
	RS_TELLS(size_t, name, (const char *s, size_t n)) \
	{ \
		RS_CALL(name); \
		size_t r = real_##name(s, n); \
		rs_called_read(&c, s, looked(r, n)); \
		return r; \
	}
LENGTH_WITHIN(strnlen)

#define COPY_STRING(name) \
	RS_TELLS(char *, name, (char *to, const char *from)) \
	{ \
		RS_CALL(name); \
		if (c.t) \
			rs_called_copy(&c, to, from, rs_length(from) + 1); \
		return real_##name(to, from); \
	}
COPY_STRING(strcpy)
COPY_STRING(stpcpy)
COPY_STRING(__stpcpy)
#define COPY_STRING_CHECKED(name) \
	RS_TELLS(char *, name, (char *to, const char *from, size_t room)) \
	{ \
		RS_CALL(name); \
		size_t n = c.t ? rs_length(from) + 1 : 0; \
		rs_called_copy(&c, to, from, n <= room ? n : 0); \
		return real_##name(to, from, room); \
	}
COPY_STRING_CHECKED(__strcpy_chk)
COPY_STRING_CHECKED(__stpcpy_chk)

/* The rest of n is filled up with zeros. */
static void tell_padded(const struct rs_called *c, const char *to, const char *from, size_t n)
{
	if (!c->t)
		return;
	rs_called_read(c, from, looked(length_within(from, n), n));
	rs_called_write(c, to, n);
}

#define COPY_PADDED(name) \
	RS_TELLS(char *, name, (char *to, const char *from, size_t n)) \
	{ \
		RS_CALL(name); \
		tell_padded(&c, to, from, n); \
		return real_##name(to, from, n); \
	}
COPY_PADDED(strncpy)
COPY_PADDED(stpncpy)
COPY_PADDED(__stpncpy)
#define COPY_PADDED_CHECKED(name) \
	RS_TELLS(char *, name, (char *to, const char *from, size_t n, size_t room)) \
	{ \
		RS_CALL(name); \
		tell_padded(&c, to, from, n <= room ? n : 0); \
		return real_##name(to, from, n, room); \
	}
COPY_PADDED_CHECKED(__strncpy_chk)
COPY_PADDED_CHECKED(__stpncpy_chk)

/* At most n bytes of from go behind the string at to; more than room is not done. */
static void tell_appended(const struct rs_called *c, const char *to, const char *from, size_t n, size_t room)
{
	if (!c->t)
		return;
	size_t at = rs_length(to), more = length_within(from, n);
	if (at + more >= room)
		return;
	rs_called_read(c, to, at + 1);
	rs_called_read(c, from, looked(more, n));
	rs_called_write(c, to + at, more + 1);
}

RS_TELLS(char *, strcat, (char *to, const char *from))
{
	RS_CALL(strcat);
	tell_appended(&c, to, from, SIZE_MAX, SIZE_MAX);
	return real_strcat(to, from);
}

RS_TELLS(char *, __strcat_chk, (char *to, const char *from, size_t room))
{
	RS_CALL(__strcat_chk);
	tell_appended(&c, to, from, SIZE_MAX, room);
	return real___strcat_chk(to, from, room);
}

RS_TELLS(char *, strncat, (char *to, const char *from, size_t n))
{
	RS_CALL(strncat);
	tell_appended(&c, to, from, n, SIZE_MAX);
	return real_strncat(to, from, n);
}

RS_TELLS(char *, __strncat_chk, (char *to, const char *from, size_t n, size_t room))
{
	RS_CALL(__strncat_chk);
	tell_appended(&c, to, from, n, room);
	return real___strncat_chk(to, from, n, room);
}

/* Of the first n; the difference of the first bytes that differ, as libc has it on x86-64. */
static int compare(const struct rs_called *c, const char *x, const char *y, size_t n)
{
	const unsigned char *a = (const unsigned char *)x, *b = (const unsigned char *)y;
	int r = 0;
	size_t i = 0;
	while (i < n && r == 0) {
		unsigned char u = *(const volatile unsigned char *)&a[i], v = *(const volatile unsigned char *)&b[i];
		i++;
		r = (int)u - (int)v;
		if (u == 0)
			break;
	}
	rs_called_read(c, x, i);
	rs_called_read(c, y, i);
	return r;
}

RS_TELLS(int, strcmp, (const char *a, const char *b))
{
	RS_CALL(strcmp);
	return c.t ? compare(&c, a, b, SIZE_MAX) : real_strcmp(a, b);
}

RS_TELLS(int, strncmp, (const char *a, const char *b, size_t n))
{
	RS_CALL(strncmp);
	return c.t ? compare(&c, a, b, n) : real_strncmp(a, b, n);
}

static void tell_folded(const struct rs_called *c, const char *a, const char *b, size_t n)
{
	if (!c->t)
		return;
	size_t k = compared_folded((const unsigned char *)a, (const unsigned char *)b, n);
	rs_called_read(c, a, k);
	rs_called_read(c, b, k);
}

#define COMPARE_FOLDED(name) \
	RS_TELLS(int, name, (const char *a, const char *b)) \
	{ \
		RS_CALL(name); \
		int r = real_##name(a, b); \
		tell_folded(&c, a, b, SIZE_MAX); \
		return r; \
	}
COMPARE_FOLDED(strcasecmp)
COMPARE_FOLDED(__strcasecmp)

#define COMPARE_FOLDED_WITHIN(name) \
	RS_TELLS(int, name, (const char *a, const char *b, size_t n)) \
	{ \
		RS_CALL(name); \
		int r = real_##name(a, b, n); \
		tell_folded(&c, a, b, n); \
		return r; \
	}
COMPARE_FOLDED_WITHIN(strncasecmp)

#define FIND(name) \
	RS_TELLS(char *, name, (const char *s, int x)) \
	{ \
		RS_CALL(name); \
		char *r = real_##name(s, x); \
		if (c.t) \
			rs_called_read(&c, s, (r ? (size_t)(r - s) : rs_length(s)) + 1); \
		return r; \
	}
FIND(strchr)
FIND(index)
FIND(strchrnul)

#define FIND_LAST(name) \
	RS_TELLS(char *, name, (const char *s, int x)) \
	{ \
		RS_CALL(name); \
		char *r = real_##name(s, x); \
		if (c.t) \
			rs_called_read(&c, s, rs_length(s) + 1); \
		return r; \
	}
FIND_LAST(strrchr)
FIND_LAST(rindex)

RS_TELLS(char *, strstr, (const char *s, const char *part))
{
	RS_CALL(strstr);
	char *r = real_strstr(s, part);
	if (c.t) {
		size_t m = rs_length(part);
		rs_called_read(&c, part, r ? m + 1 : 1);
		rs_called_read(&c, s, r ? (size_t)(r - s) + m : rs_length(s) + 1);
	}
	return r;
}

#define SPAN(name) \
	RS_TELLS(size_t, name, (const char *s, const char *set)) \
	{ \
		RS_CALL(name); \
		size_t r = real_##name(s, set); \
		rs_called_read(&c, s, r + 1); \
		return r; \
	}
SPAN(strspn)
SPAN(strcspn)

RS_TELLS(char *, strpbrk, (const char *s, const char *set))
{
	RS_CALL(strpbrk);
	char *r = real_strpbrk(s, set);
	if (c.t)
		rs_called_read(&c, s, (r ? (size_t)(r - s) : rs_length(s)) + 1);
	return r;
}

/* The copy is the caller's from now on; who else could have it? */
#define DUPLICATE(name) \
	RS_TELLS(char *, name, (const char *s)) \
	{ \
		RS_CALL(name); \
		char *r = real_##name(s); \
		if (r && c.t) \
			rs_called_copy(&c, r, s, rs_length(r) + 1); \
		return r; \
	}
DUPLICATE(strdup)
DUPLICATE(__strdup)

#define DUPLICATE_WITHIN(name) \
	RS_TELLS(char *, name, (const char *s, size_t n)) \
	{ \
		RS_CALL(name); \
		char *r = real_##name(s, n); \
		if (r && c.t) { \
			size_t len = rs_length(r); \
			rs_called_read(&c, s, looked(len, n)); \
			rs_called_write(&c, r, len + 1); \
		} \
		return r; \
	}
DUPLICATE_WITHIN(strndup)
DUPLICATE_WITHIN(__strndup)

RS_TELLS(size_t, wcslen, (const wchar_t *s))
{
	RS_CALL(wcslen);
	size_t r = real_wcslen(s);
	rs_called_read(&c, s, (r + 1) * sizeof *s);
	return r;
}

RS_TELLS(wchar_t *, wcscpy, (wchar_t * to, const wchar_t *from))
{
	RS_CALL(wcscpy);
	if (c.t)
		rs_called_copy(&c, to, from, (wide_length(from) + 1) * sizeof *to);
	return real_wcscpy(to, from);
}

RS_TELLS(wchar_t *, __wcscpy_chk, (wchar_t * to, const wchar_t *from, size_t room))
{
	RS_CALL(__wcscpy_chk);
	size_t n = c.t ? wide_length(from) + 1 : 0;
	rs_called_copy(&c, to, from, n <= room ? n * sizeof *to : 0);
	return real___wcscpy_chk(to, from, room);
}
