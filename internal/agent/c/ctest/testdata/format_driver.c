/* format_driver.c: reads records, a byte ('p': printf's format, 'P': one that the library is not given; 's': scanf's, behind which comes its input, with a length of its own), two bytes of length, and the bytes; says what is wrong of those of which format.c tells another access than the C library makes. Which arguments a format has the
 * library says itself (parse_printf_format); what scanf stored is looked at. Each argument is a block of its own, exact where it is read, so that AddressSanitizer finds what is read of another. */
#include "../../format.c"
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct told { const void *p; size_t n; bool write; };
enum { MOST = 256, ARGUMENTS = 100, BLOCK = 512 };
static struct told told[MOST];
static unsigned tolds;
static struct rs_thread *const somebody = (struct rs_thread *)1;

static void tell(const void *p, size_t n, bool write)
{
	if (tolds < MOST)
		told[tolds++] = (struct told){p, n, write};
}
void rs_called_read(const struct rs_called *c, const void *p, size_t n) { (void)c, tell(p, n, false); }
void rs_called_write(const struct rs_called *c, const void *p, size_t n) { (void)c, tell(p, n, true); }
void rs_called_find(void) {}
uint32_t rs_share_on;
void rs_share_open(struct rs_opened *o) { (void)o; }
void rs_share_shut(struct rs_opened *o) { (void)o; }

static unsigned wrong;
static void say(const char *format, const char *what, unsigned n)
{
	if (wrong++ < 20)
		fprintf(stderr, "%s: %s, argument %u\n", format, what, n + 1);
}

/* All arguments lie in memory. */
struct words { unsigned gp, fp; void *overflow, *registers; };
static void list_of(va_list *v, void *words)
{
	struct words w = {48, 176, words, NULL};
	_Static_assert(sizeof w == sizeof *v, "");
	memcpy(v, &w, sizeof w);
}

static void *exact(const void *from, size_t n)
{
	void *p = malloc(n);
	memcpy(p, from, n);
	return p;
}

static void check_printf(const char *format, bool made)
{
	static int types[ARGUMENTS];
	static uint64_t words[2 * ARGUMENTS + 2] __attribute__((aligned(16)));
	static void *block[ARGUMENTS];
	memset(types, 0, sizeof types); /* PA_INT, as what no conversion names is taken */
	size_t n = parse_printf_format(format, ARGUMENTS, types), at = 0;
	struct rs_called c = {somebody, 0, 0, 0, 0};
	va_list v, w;
	char out[4096];
	if (n > ARGUMENTS)
		return;
	for (size_t i = 0; i < n; i++) {
		static const wchar_t wide[] = L"wide";
		size_t k = (i * 7 + n) % 5;
		block[i] = NULL;
		at += at & 1 && types[i] == (PA_DOUBLE | PA_FLAG_LONG_DOUBLE);
		if (types[i] == PA_STRING || types[i] == PA_WSTRING) /* the former of %ls, too */
			words[at] = (uintptr_t)(block[i] = exact(wide + k, sizeof wide - k * sizeof *wide));
		else if (types[i] & PA_FLAG_PTR)
			words[at] = (uintptr_t)(block[i] = calloc(1, 8));
		else if (types[i] == (PA_DOUBLE | PA_FLAG_LONG_DOUBLE))
			memcpy(&words[at], &(long double){1.5L}, 16), at++;
		else if (types[i] == PA_DOUBLE)
			memcpy(&words[at], &(double){2.5}, 8);
		else
			words[at] = (uint64_t)(int64_t)(i * 5 % 9) - 2; /* also of a width, or a precision */
		at++;
	}
	tolds = 0;
	list_of(&v, words);
	list_of(&w, words);
	rs_format_prints(&c, format, false, v);
	int printed = made ? vsnprintf(out, sizeof out, format, w) : -1;
	unsigned seen[ARGUMENTS] = {0};
	for (unsigned k = 0; k < tolds; k++) {
		size_t i = 0;
		while (i < n && block[i] != told[k].p)
			i++;
		if (i == n || told[k].write != !!(types[i] & PA_FLAG_PTR))
			say(format, "an access to what is none of its strings", k);
		else
			seen[i]++;
	}
	/* What is not known ends the telling; of what the C library prints nothing is unknown here but by chance. */
	for (unsigned i = 0; i < n && printed >= 0; i++) {
		if (block[i] && !seen[i] && !strchr(format, '.') && !strstr(format, "%%"))
			say(format, "a string that is not told", i);
		free(block[i]);
	}
}

/* Not AddressSanitizer's in its place, which goes by what it takes a format for. */
static int (*libcs_vsscanf)(const char *, const char *, va_list);

/* Made twice, with blocks that are filled with different bytes, so that it is seen of each byte whether it was stored. */
static void check_scanf(const char *format, const char *input)
{
	static uint64_t words[2][ARGUMENTS];
	static unsigned char *block[2][ARGUMENTS], may[ARGUMENTS][BLOCK];
	static const unsigned char fill[2] = {0xa5, 0x5a};
	struct rs_called c = {somebody, 0, 0, 0, 0};
	int stored = 0;
	va_list v;
	for (unsigned f = 0; f < 2; f++) {
		for (unsigned i = 0; i < ARGUMENTS; i++)
			words[f][i] = (uintptr_t)(block[f][i] = memset(malloc(BLOCK), fill[f], BLOCK));
		list_of(&v, words[f]);
		stored = libcs_vsscanf(input, format, v);
	}
	tolds = 0;
	list_of(&v, words[0]);
	rs_format_scanned(&c, format, 0, v, stored);
	memset(may, 0, sizeof may);
	for (unsigned k = 0; k < tolds; k++) {
		unsigned i = 0;
		while (i < ARGUMENTS && block[0][i] != told[k].p)
			i++;
		if (i == ARGUMENTS || !told[k].write || told[k].n > BLOCK)
			say(format, "an access to what is none of its arguments", k);
		else
			memset(may[i], 1, told[k].n);
	}
	for (unsigned i = 0; i < ARGUMENTS; i++) {
		bool more = false, less = false;
		for (unsigned k = 0; k < BLOCK; k++) {
			bool is = block[0][i][k] != fill[0] || block[1][i][k] != fill[1];
			more |= is && !may[i][k];
			less |= !is && may[i][k];
		}
		if (less)
			say(format, "a store that is told, and was not made", i);
		if (more && tolds && !strpbrk(format, "ncCm")) /* %n, the last characters, and what an allocation that failed stores, where it cannot be known; and what is behind what is not known */
			say(format, "a store that is not told", i);
		free(block[0][i]);
		free(block[1][i]);
	}
}

static char *text(void)
{
	unsigned char length[2];
	if (fread(length, 2, 1, stdin) != 1)
		return NULL;
	size_t n = length[0] | (size_t)length[1] << 8;
	char *s = calloc(n + 1, 1);
	if (n && fread(s, n, 1, stdin) != 1)
		abort();
	return exact(s, strlen(s) + 1);
}

static const char *now;
static void died(void) { fprintf(stderr, "%s: died of it\n", now); }
void __asan_set_death_callback(void (*f)(void));

int main(void)
{
	__asan_set_death_callback(died);
	libcs_vsscanf = (int (*)(const char *, const char *, va_list))dlsym(dlopen("libc.so.6", RTLD_NOLOAD | RTLD_LAZY), "__isoc99_vsscanf");
	for (int kind; (kind = getchar()) != EOF;) {
		char *format = text(), *input = kind == 's' ? text() : NULL;
		now = format;
		if (input)
			check_scanf(format, input);
		else
			check_printf(format, kind == 'p');
		free(format);
		free(input);
	}
	return wrong != 0;
}
