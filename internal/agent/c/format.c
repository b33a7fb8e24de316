/* format.c: the memory behind the arguments of printf and scanf, by their formats (called.h): strings that are printed, and what %n and scanf's conversions store. As libio.c's functions it counts as the caller's.
 *
 * What is told is at most what is accessed: a conversion that is not known ends the telling, and where the program has conversions of its own none is told. Of scanf only what its result says was
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
		return (struct kind){8, true, takes(a, 'l')};
	if (takes(a, 'L') || takes(a, 'q'))
		return (struct kind){8, false, true};
	if (takes(a, 'j') || takes(a, 'z') || takes(a, 'Z') || takes(a, 't')) /* glibc takes all of them for l, of strings too */
		return (struct kind){8, true, false};
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

enum { NUMBERED = 64 }; /* arguments by number (%1$s) that are kept; with more nothing is told */
enum type { NONE, INT, LONG, DOUBLE, LONG_DOUBLE, POINTER, UNKNOWN };

/* number, width, most: which arguments these are, 0: the next ones. */
struct conversion { unsigned number, width, most; bool has_width, has_most; uint64_t exactly; struct kind k; uint32_t what; };

/* "1$"; 0: there is none. */
static unsigned which(struct at *a)
{
	struct at begin = *a;
	uint64_t n = number(a);
	if (n && takes(a, '$'))
		return (unsigned)n;
	*a = begin;
	return 0;
}

/* Behind a *. False: digits that are no argument's number. */
static bool by_argument(struct at *a, bool *has, unsigned *n)
{
	*has = true;
	*n = which(a);
	return *n || !is_digit(next(a));
}

/* A conversion, behind its %. False: it is not known. */
static bool parse(struct at *a, struct conversion *x)
{
	*x = (struct conversion){.number = which(a), .exactly = UINT64_MAX};
	while (takes(a, '-') || takes(a, '+') || takes(a, ' ') || takes(a, '#') || takes(a, '0') || takes(a, '\'') || takes(a, 'I'))
		;
	if (!takes(a, '*'))
		number(a);
	else if (!by_argument(a, &x->has_width, &x->width))
		return false;
	if (takes(a, '.')) {
		if (!takes(a, '*'))
			x->exactly = number(a);
		else if (!by_argument(a, &x->has_most, &x->most))
			return false;
	}
	x->k = modifiers(a);
	x->what = take(a);
	return true;
}

static enum type type_of(const struct conversion *x)
{
	switch (x->what) {
	case 'd': case 'i': case 'u': case 'o': case 'x': case 'X': case 'b': case 'B':
		return x->k.size == 8 ? LONG : INT;
	case 'c': case 'C':
		return INT;
	case 'e': case 'E': case 'f': case 'F': case 'g': case 'G': case 'a': case 'A':
		return x->k.L ? LONG_DOUBLE : DOUBLE;
	case 's': case 'S': case 'p': case 'n':
		return POINTER;
	case 'm': case '%':
		return NONE;
	default:
		return UNKNOWN;
	}
}

static uint64_t fetch(va_list *v, enum type type)
{
	switch (type) {
	case INT: return (uint64_t)(int64_t)va_arg(*v, int);
	case LONG: return va_arg(*v, unsigned long);
	case DOUBLE: (void)va_arg(*v, double); return 0;
	case LONG_DOUBLE: (void)va_arg(*v, long double); return 0;
	case POINTER: return (uintptr_t)va_arg(*v, void *);
	default: return 0;
	}
}

/* values[0]: how many arguments are known by number, 0: they come one after the other. */
struct arguments { va_list *v; uint64_t values[NUMBERED + 1]; };

static bool take_argument(struct arguments *from, unsigned n, enum type type, uint64_t *value)
{
	if (type == NONE) /* whatever number it has */
		return true;
	if (type == UNKNOWN || (n != 0) != (from->values[0] != 0))
		return false;
	*value = n ? from->values[n] : fetch(from->v, type);
	return true;
}

/* False: it is not known. */
static bool prints(const struct rs_called *c, struct at *a, struct arguments *from)
{
	struct conversion x;
	uint64_t width = 0, most = 0, value = 0;
	if (!parse(a, &x) || !take_argument(from, x.width, x.has_width ? INT : NONE, &width) || !take_argument(from, x.most, x.has_most ? INT : NONE, &most) || !take_argument(from, x.number, type_of(&x), &value))
		return false;
	if (!x.has_most)
		most = x.exactly;
	else if ((int64_t)most < 0)
		most = UINT64_MAX;
	if (x.what == 's' || x.what == 'S') {
		bool wide = x.k.l || x.what == 'S';
		prints_string(c, (const void *)(uintptr_t)value, wide, wide == a->wide, most);
	} else if (x.what == 'n')
		rs_called_write(c, (void *)(uintptr_t)value, x.k.size);
	return true;
}

static bool note(enum type *types, unsigned n, enum type type, unsigned *last)
{
	if (type == NONE)
		return true;
	if (type == UNKNOWN || !n || n > NUMBERED || (types[n] != NONE && types[n] != type))
		return false;
	types[n] = type;
	*last = n > *last ? n : *last;
	return true;
}

/* What the arguments are is known when all of the format has been seen. One that no conversion names is an int, as glibc takes it. False: not all of it is known. */
static bool collect(struct at a, struct arguments *from)
{
	enum type types[NUMBERED + 1] = {NONE};
	unsigned last = 0;
	struct conversion x;
	for (uint32_t w; (w = take(&a));)
		if (w == '%' && (!parse(&a, &x) || !note(types, x.width, x.has_width ? INT : NONE, &last) || !note(types, x.most, x.has_most ? INT : NONE, &last) || !note(types, x.number, type_of(&x), &last)))
			return false;
	for (unsigned i = 1; i <= last; i++)
		from->values[i] = fetch(from->v, types[i] == NONE ? INT : types[i]);
	from->values[0] = last;
	return true;
}

/* The first conversion that has an argument says whether they are by number. */
static bool is_by_number(struct at a)
{
	struct conversion x;
	for (uint32_t w; (w = take(&a));)
		if (w == '%' && parse(&a, &x) && type_of(&x) != NONE)
			return x.number;
	return false;
}

void rs_format_prints(const struct rs_called *c, const void *format, bool wide, va_list args)
{
	if (!c->t || !format || own)
		return;
	RS_OPENS();
	va_list v;
	va_copy(v, args);
	struct at a = {format, wide};
	struct arguments from;
	from.v = &v;
	from.values[0] = 0;
	if (!is_by_number(a) || collect(a, &from))
		for (uint32_t x; (x = take(&a));)
			if (x == '%' && !prints(c, &a, &from))
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

/* The nth argument, 0: the next one. All of scanf's are pointers. */
static void *pointer(va_list *v, unsigned n)
{
	if (!n)
		return va_arg(*v, void *);
	va_list w;
	void *p;
	va_copy(w, *v);
	do
		p = va_arg(w, void *);
	while (--n);
	va_end(w);
	return p;
}

/* A conversion, behind its %. False: it is not known, or it and what follows stored nothing. */
static bool scans(const struct rs_called *c, struct at *a, struct scan *s, va_list *v)
{
	bool none = false, allocates = false;
	unsigned which_one = which(a);
	if (which_one > NUMBERED)
		return false;
	while (next(a) == '*' || next(a) == '\'' || next(a) == 'I')
		none |= take(a) == '*';
	bool has_width = is_digit(next(a));
	uint64_t width = has_width ? number(a) : 1;
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
	if (allocates && conversion != 's' && conversion != 'S' && conversion != '[' && conversion != 'c' && conversion != 'C')
		return false;
	if (conversion == '%') {
		s->sure = false;
		return true;
	}
	if (conversion == 'n') {
		if (none)
			return true;
		void *p = pointer(v, which_one);
		if (s->stored > s->at || (s->stored == s->at && s->sure))
			rs_called_write(c, p, k.size);
		return true;
	}
	if (none || s->stored == s->at)
		s->sure = false; /* it may have failed */
	if (!none && s->stored == s->at)
		return false;
	void *p = none ? NULL : pointer(v, which_one);
	bool last = s->stored == s->at + 1, wide = k.l || k.L || conversion == 'S' || conversion == 'C';
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
