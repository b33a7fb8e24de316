// Functions that make numbers of strings, cut them up, compare and sort, and those on wide strings access memory for their callers: races by them, each with a right twin beside it where there is one.
#include "../run.h"
#include <wchar.h>

static volatile size_t n = 10;
static int compares(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }

// strtol reads its number, and one more.
char number[16] = "1234 67";
static void *does_number(void *p) { use(strtol(number, 0, 10)); /* race number */ return p; }
static void *meets_number(void *p) { number[4] = '5'; /* race number */ return p; }
static void *beside_number(void *p) { number[6] = '5'; return p; }

// It says where that ends.
char *ends_at;
static void *does_ends(void *p) { use(strtoul("12", &ends_at, 10)); /* race ends */ return p; }
static void *meets_ends(void *p) { use(ends_at); /* race ends */ return p; }

char short_number[16] = "12 4";
static void *does_atoi(void *p) { use(atoi(short_number)); /* race atoi */ return p; }
static void *meets_atoi(void *p) { short_number[2] = 0; /* race atoi */ return p; }
static void *beside_atoi(void *p) { short_number[3] = 0; return p; }

char part[16] = "1.5,4";
static void *does_atof(void *p) { use(atof(part) > 1); /* race atof */ return p; }
static void *meets_atof(void *p) { part[2] = '6'; /* race atof */ return p; }
static void *beside_atof(void *p) { part[4] = '5'; return p; }

wchar_t wide_number[16] = L"12 45";
static void *does_wide_number(void *p) { use(wcstol(wide_number, 0, 10)); /* race wide_number */ return p; }
static void *meets_wide_number(void *p) { wide_number[2] = 0; /* race wide_number */ return p; }
static void *beside_wide_number(void *p) { wide_number[3] = 0; return p; }

// strtok_r ends a piece.
char cut[16] = "ab,cd";
static void *does_cut(void *p) { char *rest; use(strtok_r(cut, ",", &rest)); /* race cut */ return p; }
static void *meets_cut(void *p) { use(cut[2]); /* race cut */ return p; }
static void *beside_cut(void *p) { use(cut[3]); return p; }

// strtok keeps what is left, for all threads; natively where it is, only libc knows.
char kept[16] = "a b", by_itself[16] = "c d";
static void *does_kept(void *p) { use(strtok(kept, " ")); /* race kept */ return p; }
static void *meets_kept(void *p) { use(strtok(by_itself, " ")); /* race kept */ return p; }
char apart[16] = "ab,cd";
static void *does_apart(void *p) { use(strtok(apart, ",") == apart && strtok(NULL, ",") == apart + 3 && !strtok(NULL, ",")); /* race apart */ return p; }
static void *meets_apart(void *p) { use(apart[4]); apart[2] = 'x'; /* race apart */ return p; }

// Nothing is written where the string ends.
char uncut[16] = "ab";
static void *does_uncut(void *p) { char *rest; use(strtok_r(uncut, ",", &rest)); return p; }
static void *beside_uncut(void *p) { use(uncut[2]); return p; }

char *rest_of, words[16] = "a b c";
static void *does_rest(void *p) { use(strtok_r(words, " ", &rest_of)); /* race rest */ return p; }
static void *meets_rest(void *p) { use(rest_of); /* race rest */ return p; }

char *pieces, piece[16] = "x:y";
static void *does_separate(void *p) { pieces = piece; use(strsep(&pieces, ":")); /* race separate */ return p; }
static void *meets_separate(void *p) { use(piece[1]); /* race separate */ return p; }
static void *beside_separate(void *p) { use(piece[2]); return p; }

char left[16] = "abcd";
static void *does_collate(void *p) { use(strcoll(left, "abxx")); /* race collate */ return p; }
static void *meets_collate(void *p) { left[2] = 'y'; /* race collate */ return p; }
static void *beside_collate(void *p) { left[3] = 'y'; return p; }

char transformed[16];
static void *does_transform(void *p) { use(strxfrm(transformed, "abc", sizeof transformed)); /* race transform */ return p; }
static void *meets_transform(void *p) { use(transformed[3]); /* race transform */ return p; }
static void *beside_transform(void *p) { use(transformed[4]); return p; }

// qsort moves all, and no more.
int sorted[8] = {5, 4, 3, 2, 1};
static void *does_sort(void *p) { qsort(sorted, 5, sizeof *sorted, compares); /* race sort */ return p; }
static void *meets_sort(void *p) { use(sorted[4]); /* race sort */ return p; }
static void *beside_sort(void *p) { use(sorted[5]); return p; }

// One element stays where it is.
int alone[2] = {5};
static void *does_one(void *p) { qsort(alone, 1, sizeof *alone, compares); return p; }
static void *beside_one(void *p) { use(alone[0]); return p; }

wchar_t name[16] = L"same";
static void *does_wcscmp(void *p) { use(wcscmp(name, L"saxe")); /* race wcscmp */ return p; }
static void *meets_wcscmp(void *p) { name[2] = 0; /* race wcscmp */ return p; }
static void *beside_wcscmp(void *p) { name[3] = 0; return p; }

wchar_t longer[16] = L"ab";
static void *does_wcscat(void *p) { use(wcscat(longer, L"cd")); /* race wcscat */ return p; }
static void *meets_wcscat(void *p) { use(longer[4]); /* race wcscat */ return p; }
static void *beside_wcscat(void *p) { use(longer[5]); return p; }

wchar_t padded[16];
static void *does_wcsncpy(void *p) { use(wcsncpy(padded, L"ab", n)); /* race wcsncpy */ return p; }
static void *meets_wcsncpy(void *p) { use(padded[9]); /* race wcsncpy */ return p; }
static void *beside_wcsncpy(void *p) { use(padded[10]); return p; }

wchar_t path[16] = L"a/b";
static void *does_wcschr(void *p) { use(wcschr(path, L'/')); /* race wcschr */ return p; }
static void *meets_wcschr(void *p) { path[1] = 0; /* race wcschr */ return p; }
static void *beside_wcschr(void *p) { path[2] = 0; return p; }

int main(void)
{
	both(does_number, beside_number);
	both(does_number, meets_number);
	both(does_ends, meets_ends);
	both(does_atoi, beside_atoi);
	both(does_atoi, meets_atoi);
	both(does_atof, beside_atof);
	both(does_atof, meets_atof);
	both(does_wide_number, beside_wide_number);
	both(does_wide_number, meets_wide_number);
	both(does_cut, beside_cut);
	cut[2] = ',';
	both(does_cut, meets_cut);
	both(does_kept, meets_kept);
	both(does_apart, meets_apart);
	both(does_uncut, beside_uncut);
	both(does_rest, meets_rest);
	both(does_separate, beside_separate);
	piece[1] = ':';
	both(does_separate, meets_separate);
	both(does_collate, beside_collate);
	both(does_collate, meets_collate);
	both(does_transform, beside_transform);
	both(does_transform, meets_transform);
	both(does_sort, beside_sort);
	both(does_sort, meets_sort);
	both(does_one, beside_one);
	both(does_wcscmp, beside_wcscmp);
	both(does_wcscmp, meets_wcscmp);
	both(does_wcscat, beside_wcscat);
	both(does_wcscat, meets_wcscat);
	both(does_wcsncpy, beside_wcsncpy);
	both(does_wcsncpy, meets_wcsncpy);
	both(does_wcschr, beside_wcschr);
	both(does_wcschr, meets_wcschr);
	puts("done");
	return 0;
}
