/* format.c: the memory behind the arguments of printf and scanf, by their formats (called.h): strings that are printed, and what %n and scanf's conversions store. As libio.c's functions it counts as the caller's.
 *
 * What is told is at most what is accessed: a conversion that is not known, or arguments by number (%1$s), end the telling, and where the program has conversions of its own none is told. Of scanf only what its result says was
 * stored; %n, which is not counted there, where nothing that may have failed lies between. Formats themselves are not told.
 *
 * No libc: a format is gone through once, up to its end. */
#include "called.h"
#include <printf.h>
#include <wchar.h>

static bool own; /* the program has conversions of its own */

#define REGISTERS(name, params, args) \
	RS_TELLS(int, name, params) \
	{ \
		RS_NEED(name); \
		own = true; \
		return real_##name args; \
	}
REGISTERS(register_printf_specifier, (int what, printf_function f, printf_arginfo_size_function size), (what, f, size))
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
REGISTERS(register_printf_function, (int what, printf_function f, printf_arginfo_function size), (what, f, size))
REGISTERS(register_printf_modifier, (const wchar_t *what), (what))

struct at { const char *p; bool wide; };

static uint32_t next(const struct at *a)
{
	uint32_t w;
	if (!a->wide)
		return (unsigned char)*a->p;
	__builtin_memcpy(&w, a->p, sizeof w);
	return w;
}

/* The end is not passed by. */
static uint32_t take(struct at *a)
{
	uint32_t c = next(a);
	if (c)
		a->p += a->wide ? sizeof(wchar_t) : 1;
	return c;
}

static bool takes(struct at *a, char c)
{
	if (next(a) != (unsigned char)c)
		return false;
	take(a);
	return true;
}

static bool is_digit(uint32_t c) { return c - '0' < 10; }

/* A number; one that is too large for any memory stays so. */
static uint64_t number(struct at *a)
{
	uint64_t n = 0;
	while (is_digit(next(a))) {
		uint32_t digit = take(a) - '0';
		if (n < 1u << 30)
			n = 10 * n + digit;
	}
	return n;
}

struct kind { unsigned size; bool l, L; }; /* of an integer, in bytes */

static struct kind modifiers(struct at *a)
{
	if (takes(a, 'h'))
		return (struct kind){takes(a, 'h') ? 1 : 2, false, false};
	if (takes(a, 'l'))
		return takes(a, 'l') ? (struct kind){8, false, true} : (struct kind){8, true, false};
	if (takes(a, 'L') || takes(a, 'q'))
		return (struct kind){8, false, true};
	if (takes(a, 'j') || takes(a, 'z') || takes(a, 'Z') || takes(a, 't'))
		return (struct kind){8, false, false};
	return (struct kind){4, false, false};
}

/* How many of a string's first `most` characters are read, its end among them if it comes so early. */
static size_t reach(const void *s, bool wide, size_t most)
{
	struct at a = {s, wide};
	size_t n = 0;
	while (n < most) {
		n++;
		if (!take(&a))
			break;
	}
	return n;
}

void rs_format_reads(const struct rs_called *c, const void *s, bool wide)
{
	if (!c->t)
		return;
	RS_OPENS();
	rs_called_read(c, s, reach(s, wide, SIZE_MAX) * (wide ? sizeof(wchar_t) : 1));
}

static void prints_string(const struct rs_called *c, const void *s, bool wide, bool exact, uint64_t most)
{
	if (!s || !most)
		return; /* "(null)" */
	if (!exact && most != UINT64_MAX)
		most = 1; /* what is counted is what is printed */
	rs_called_read(c, s, reach(s, wide, most) * (wide ? sizeof(wchar_t) : 1));
}

/* A conversion, behind its %. False: it is not known. */
static bool prints(const struct rs_called *c, struct at *a, va_list *v)
{
	while (takes(a, '-') || takes(a, '+') || takes(a, ' ') || takes(a, '#') || takes(a, '0') || takes(a, '\'') || takes(a, 'I'))
		;
	if (takes(a, '*')) {
		if (is_digit(next(a)))
			return false;
		(void)va_arg(*v, int);
	} else
		number(a);
	uint64_t most = UINT64_MAX;
	if (takes(a, '.')) {
		if (takes(a, '*')) {
			if (is_digit(next(a)))
				return false;
			int n = va_arg(*v, int);
			most = n < 0 ? UINT64_MAX : (uint64_t)n;
		} else
			most = number(a);
	}
	struct kind k = modifiers(a);
	uint32_t conversion = take(a);
	switch (conversion) {
	case 'd': case 'i': case 'u': case 'o': case 'x': case 'X': case 'b': case 'B':
		if (k.size == 8)
			(void)va_arg(*v, long);
		else
			(void)va_arg(*v, int);
		return true;
	case 'c': case 'C':
		(void)va_arg(*v, int);
		return true;
	case 'e': case 'E': case 'f': case 'F': case 'g': case 'G': case 'a': case 'A':
		if (k.L)
			(void)va_arg(*v, long double);
		else
			(void)va_arg(*v, double);
		return true;
	case 's': case 'S': {
		bool wide = k.l || conversion == 'S';
		prints_string(c, va_arg(*v, const void *), wide, wide == a->wide, most);
		return true;
	}
	case 'p':
		(void)va_arg(*v, void *);
		return true;
	case 'n':
		rs_called_write(c, va_arg(*v, void *), k.size);
		return true;
	case 'm': case '%':
		return true;
	default:
		return false;
	}
}

void rs_format_prints(const struct rs_called *c, const void *format, bool wide, va_list args)
{
	if (!c->t || !format || own)
		return;
	RS_OPENS();
	va_list v;
	va_copy(v, args);
	struct at a = {format, wide};
	for (uint32_t x; (x = take(&a));)
		if (x == '%' && !prints(c, &a, &v))
			break;
	va_end(v);
}

/* A set of characters, behind its [. */
static void pass_set(struct at *a)
{
	takes(a, '^');
	takes(a, ']');
	while (next(a) && !takes(a, ']'))
		take(a);
}

static bool is_space(uint32_t c) { return c == ' ' || c - '\t' < 5; }

/* What is known of a call of scanf: stored, how many conversions its result counts; so far; sure: what was looked at behind the last of them cannot have failed. */
struct scan { int stored, at; bool old, sure; };

/* A conversion, behind its %. False: it is not known, or it and what follows stored nothing. */
static bool scans(const struct rs_called *c, struct at *a, struct scan *s, va_list *v)
{
	bool none = false, allocates = false;
	while (next(a) == '*' || next(a) == '\'' || next(a) == 'I')
		none |= take(a) == '*';
	bool has_width = is_digit(next(a));
	uint64_t width = has_width ? number(a) : 1;
	if (next(a) == '$')
		return false;
	struct at before = *a;
	if (takes(a, 'm'))
		allocates = true;
	else if (s->old && takes(a, 'a')) {
		allocates = next(a) == 's' || next(a) == 'S' || next(a) == '[';
		if (!allocates)
			*a = before;
	}
	struct kind k = modifiers(a);
	uint32_t conversion = take(a);
	if (conversion == '%') {
		s->sure = false;
		return true;
	}
	if (conversion == 'n') {
		if (none)
			return true;
		void *p = va_arg(*v, void *);
		if (s->stored > s->at || (s->stored == s->at && s->sure))
			rs_called_write(c, p, k.size);
		return true;
	}
	if (none || s->stored == s->at)
		s->sure = false; /* it may have failed */
	if (!none && s->stored == s->at)
		return false;
	void *p = none ? NULL : va_arg(*v, void *);
	bool last = s->stored == s->at + 1, wide = k.l || conversion == 'S' || conversion == 'C';
	size_t n, unit = wide ? sizeof(wchar_t) : 1;
	switch (conversion) {
	case 'd': case 'i': case 'u': case 'o': case 'x': case 'X': case 'b':
		n = k.size;
		break;
	case 'p':
		n = sizeof(void *);
		break;
	case 'e': case 'E': case 'f': case 'F': case 'g': case 'G': case 'a': case 'A':
		n = k.L ? 10 : k.l ? sizeof(double) : sizeof(float);
		break;
	case '[':
		pass_set(a);
		/* fallthrough */
	case 's': case 'S':
		n = p && !allocates ? reach(p, wide, SIZE_MAX) * unit : 0;
		break;
	case 'c': case 'C': /* of several the input may have had fewer, if it ended there */
		n = (last ? 1 : width) * unit;
		break;
	default:
		return false;
	}
	if (none)
		return true;
	rs_called_write(c, p, allocates ? sizeof(void *) : n);
	s->at++;
	s->sure = true;
	return true;
}

void rs_format_scanned(const struct rs_called *c, const void *format, unsigned how, va_list args, int stored)
{
	if (!c->t || !format || stored < 0)
		return;
	RS_OPENS();
	va_list v;
	va_copy(v, args);
	struct at a = {format, how & RS_FORMAT_WIDE};
	struct scan s = {.stored = stored, .old = how & RS_FORMAT_OLD};
	for (uint32_t x; (x = take(&a));)
		if (x == '%') {
			if (!scans(c, &a, &s, &v))
				break;
		} else if (!is_space(x))
			s.sure = false;
	va_end(v);
}
