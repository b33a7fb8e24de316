// What formats say of memory: strings that printf prints, what %n and scanf's conversions store. Each is the caller's access: to as much as is printed or stored, and nothing behind it.
#include "../run.h"
#include <stdarg.h>
#include <wchar.h>

#define MUST(x) do { if (!(x)) abort(); } while (0)
static FILE *out;

// Printed: a string, with an end and by a length; wide; by way of a va_list; into memory.
static char text[32] = "a string of some length";
static void *prints(void *p) { fprintf(out, "%d %-30s|%c %Lf\n", 1, text, 'x', 1.5L); return p; } // race printed
static void *ends(void *p) { text[23] = 0; return p; } // race printed
static void *writes_behind(void *p) { text[24] = 'x'; return p; }
static char part[32] = "a string that is cut";
static void *prints_part(void *p) { fprintf(out, "%.*s, %5.3s\n", 8, part, part); return p; } // race part
static void *writes_part(void *p) { part[7] = 'X'; return p; } // race part
static void *writes_rest(void *p) { part[8] = 'X'; return p; }
static wchar_t wide[8] = L"wide";
static void *prints_wide(void *p) { fprintf(out, "%ls\n", wide); return p; } // race wide
static void *writes_wide(void *p) { wide[3] = L'E'; return p; } // race wide
static void *writes_wide_behind(void *p) { wide[5] = L'x'; return p; }
static char by_list[] = "by a list";
static void with_list(const char *format, ...)
{
	va_list v;
	va_start(v, format);
	vfprintf(out, format, v); // race list
	va_end(v);
}
static void *prints_list(void *p)
{
	with_list("%s %f %ld %s\n", "1", 2.0, 3l, by_list);
	return p;
}
static void *writes_list(void *p) { by_list[0] = 'B'; return p; } // race list
static char into[] = "into memory";
static void *prints_into(void *p)
{
	char line[64];
	MUST(snprintf(line, sizeof line, "%zu %s", sizeof line, into) == 14); // race into
	return p;
}
static void *writes_into(void *p) { into[10] = 'Y'; return p; } // race into
static int counted;
static void *counts(void *p) { fprintf(out, "%s%n\n", "count", &counted); return p; } // race count
static void *asks_count(void *p) { use(counted); return p; } // race count
static char *made;
static void *makes(void *p) { MUST(asprintf(&made, "%s", "made") == 4); return p; } // race made
static void *takes(void *p) { use(made); return p; } // race made
// More than registers hold.
static char last[] = "the last";
static void *prints_many(void *p)
{
	fprintf(out, "%d %d %d %d %d %d %f %f %f %f %f %f %f %f %f %Lf %s\n", 1, 2, 3, 4, 5, 6, 1., 2., 3., 4., 5., 6., 7., 8., 9., 10.L, last); // race last
	return p;
}
static void *writes_last(void *p) { last[7] = 'T'; return p; } // race last
// By number: arguments come in any order, and more than once.
static char numbered[] = "by number";
static void *prints_numbered(void *p) { fprintf(out, "%4$s %1$Lf%% %5$c %2$ld %3$d\n", 1.5L, 2l, 3, numbered, 'x'); return p; } // race numbered
static void *writes_numbered(void *p) { numbered[9] = 0; return p; } // race numbered
static char cut[] = "cut by number";
static void *prints_cut(void *p) { fprintf(out, "%3$*1$.*2$s|%3$.1s\n", 9, 3, cut); return p; } // race cut
static void *writes_cut(void *p) { cut[2] = 'T'; return p; } // race cut
static void *writes_behind_cut(void *p) { cut[3] = '-'; return p; }
static int place;
static void *counts_numbered(void *p) { fprintf(out, "%2$s%1$n\n", &place, "count"); return p; } // race place
static void *asks_place(void *p) { use(place); return p; } // race place
static void *prints_none(void *p) { fprintf(out, "%.0s%% %.3d %5c\n", text, 4, 'c'); return p; }
static void *writes_text(void *p) { text[0] = 'A'; return p; }

// Stored: numbers, of their sizes; strings; pointers; only as many as were found.
static struct { char byte, behind; short half; int whole; long big; float f; double d; } numbers;
static void *scans_byte(void *p) { MUST(sscanf("1", "%hhd", &numbers.byte) == 1); return p; } // race byte
static void *looks_byte(void *p) { use(numbers.byte); return p; } // race byte
static void *looks_behind(void *p) { use(numbers.behind); return p; }
static void *scans_more(void *p) { MUST(sscanf("2 3,4 5.5", "%hd%d,%*s%lf", &numbers.half, &numbers.whole, &numbers.d) == 3); return p; } // race more
static void *looks_more(void *p) { use((int)numbers.d); return p; } // race more
static void *scans_less(void *p) { MUST(sscanf("2 x", "%hd%ld", &numbers.half, &numbers.big) == 1); return p; }
static void *looks_not_stored(void *p) { use(numbers.big); return p; }
static char word[16], letters[16];
static void *scans_word(void *p) { MUST(sscanf("word abcx", "%15s %[]a-c]", word, letters) == 2); return p; } // race word
static void *looks_word(void *p) { use(letters[3]); return p; } // race word
static void *looks_behind_word(void *p) { use(word[5]); return p; }
static wchar_t wide_word[8];
static void *scans_wide(void *p) { MUST(swscanf(L"abc 7", L"%ls", wide_word) == 1); return p; } // race wide_word
static void *looks_wide(void *p) { use(wide_word[3]); return p; } // race wide_word
static char *allocated;
static void *scans_new(void *p) { MUST(sscanf("new", "%ms", &allocated) == 1); return p; } // race allocated
static void *looks_new(void *p) { use(allocated); return p; } // race allocated
static int passed;
static void *scans_passed(void *p) { MUST(sscanf("12 34", "%*d %d%n", &numbers.whole, &passed) == 1); return p; } // race passed
static void *looks_passed(void *p) { use(passed); return p; } // race passed
static void *scans_not_so_far(void *p) { MUST(sscanf("12 34", "%d,%n", &numbers.whole, &passed) == 1); return p; }
static char four[4];
static void *scans_four(void *p) { MUST(sscanf("abcd 1", "%4c %d", four, &numbers.whole) == 2); return p; } // race four
static void *looks_four(void *p) { use(four[3]); return p; } // race four
static FILE *in;
static void *scans_file(void *p) { MUST(fscanf(in, "%f", &numbers.f) == 1); return p; } // race file
static void *looks_file(void *p) { use((int)numbers.f); return p; } // race file
static int second, first;
static void *scans_numbered(void *p) { MUST(sscanf("1 2 3", "%2$d %*d %1$d", &second, &first) == 2 && second == 3); return p; } // race numbers
static void *looks_numbered(void *p) { use(first); return p; } // race numbers
static void *scans_first(void *p) { MUST(sscanf("1 x", "%2$d %1$d", &second, &first) == 1); return p; }
static void *looks_second(void *p) { use(second); return p; }
static char source[] = "1 and more";
static void *scans_source(void *p)
{
	int n;
	MUST(sscanf(source, "%d", &n) == 1); // race source
	return p;
}
static void *changes_source(void *p) { source[9] = 'E'; return p; } // race source

// With a lock, and of each thread's own.
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void *locked(void *p)
{
	char mine[16];
	int n;
	pthread_mutex_lock(&mutex);
	MUST(sscanf("1 2 w", "%d %ld %15s", &numbers.whole, &numbers.big, word) == 3);
	fprintf(out, "%d %ld %s%n\n", numbers.whole, numbers.big, word, &counted);
	pthread_mutex_unlock(&mutex);
	MUST(sscanf("own 3", "%s%d", mine, &n) == 2 && n == 3);
	fprintf(out, "%s %s\n", mine, by_list);
	return p;
}
// Conversions of glibc's own, and a string that is none.
static void *odd(void *p)
{
	char line[64], *none = 0;
	MUST(snprintf(line, sizeof line, "%2$s %1$s", "b", "a") == 3 && strcmp(line, "a b") == 0);
	MUST(snprintf(line, sizeof line, "%m %s", none) > 6);
	return p;
}

int main(void)
{
	out = fopen("/dev/null", "w");
	in = tmpfile();
	fputs("1.5\n", in);
	rewind(in);
	both(locked, locked);
	both(odd, odd);
	both(prints, ends);
	both(prints, writes_behind);
	both(prints_part, writes_part);
	both(prints_part, writes_rest);
	both(prints_wide, writes_wide);
	both(prints_wide, writes_wide_behind);
	both(prints_list, writes_list);
	both(prints_into, writes_into);
	both(counts, asks_count);
	both(makes, takes);
	both(prints_many, writes_last);
	both(prints_numbered, writes_numbered);
	both(prints_cut, writes_cut);
	both(prints_cut, writes_behind_cut);
	both(counts_numbered, asks_place);
	both(prints_none, writes_text);
	both(prints, prints);
	both(scans_byte, looks_byte);
	both(scans_byte, looks_behind);
	both(scans_more, looks_more);
	both(scans_less, looks_not_stored);
	both(scans_word, looks_word);
	both(scans_word, looks_behind_word);
	both(scans_wide, looks_wide);
	both(scans_new, looks_new);
	both(scans_passed, looks_passed);
	both(scans_not_so_far, looks_passed);
	both(scans_four, looks_four);
	both(scans_file, looks_file);
	both(scans_numbered, looks_numbered);
	both(scans_first, looks_second);
	both(scans_source, changes_source);
	printf("%s %d %s %s\n", made, counted, word, allocated);
	return 0;
}
