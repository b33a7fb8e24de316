// Functions of the C library access memory for their callers: races by them, each with a right twin beside it.
#include "../run.h"
#include <wchar.h>

static volatile size_t n = 20;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

char copied[64], from[64] = "abcdefghijklmnopqrstuvwxyz";
static void *copies(void *p) { memcpy(copied, from, n); /* race memcpy */ return p; }
static void *reads(void *p) { use(copied[n - 1]); /* race memcpy */ return p; }

// Neighbours are apart: the copy ends where the other begins.
char apart[64];
static void *copies_below(void *p) { memcpy(apart, from, n); return p; }
static void *writes_above(void *p) { apart[n] = 1; return p; }

char moved[64];
static void *moves(void *p) { memmove(moved + 1, moved, n); /* race memmove */ return p; }
static void *moves_too(void *p) { memmove(moved, moved + 1, n); /* race memmove */ return p; }

char set[8] __attribute__((aligned(8)));
static void *sets(void *p) { memset(set, 1, n - 12); /* race memset_of_a_words_size */ return p; }
static void *reads_word(void *p) { use(*(long *)set); /* race memset_of_a_words_size */ return p; }

char locked[64];
static void *sets_locked(void *p)
{
	pthread_mutex_lock(&mutex);
	memset(locked, 1, n);
	pthread_mutex_unlock(&mutex);
	return p;
}
static void *compares_locked(void *p)
{
	pthread_mutex_lock(&mutex);
	use(memcmp(locked, from, n));
	use(strlen(locked));
	pthread_mutex_unlock(&mutex);
	return p;
}

// A comparison ends with the first difference.
char left[64] = "same, then this", right[64] = "same, but that";
static void *compares(void *p) { use(memcmp(left, right, n)); /* race memcmp */ return p; }
static void *changes(void *p) { left[6] = 't'; /* race memcmp */ return p; }
static void *changes_behind(void *p) { left[7] = 'x'; right[40] = 'y'; return p; }

char name[64] = "a name";
static void *compares_names(void *p) { use(strcmp(name, "a name")); /* race strcmp_and_strcpy */ return p; }
static void *renames(void *p) { strcpy(name, from); /* race strcmp_and_strcpy */ return p; }

char text[64] = "to be continued";
static void *measures(void *p) { use(strlen(text)); /* race strlen */ return p; }
static void *continues(void *p) { strcat(text, ", here"); /* race strlen */ return p; }

char path[64] = "a/path/to";
static void *finds(void *p) { use(strrchr(path, '/')); /* race strrchr */ return p; }
static void *shortens(void *p) { path[6] = 0; /* race strrchr */ return p; }
static void *finds_first(void *p) { use(strchr(path, '/')); return p; }
static void *changes_rest(void *p) { path[2] = 'P'; return p; }

char padded[32];
static void *copies_padded(void *p) { strncpy(padded, "ab", n); /* race strncpy_fills_up */ return p; }
static void *reads_pad(void *p) { use(padded[n - 1]); /* race strncpy_fills_up */ return p; }
static void *reads_behind_pad(void *p) { use(padded[n]); return p; }

char original[16] = "original";
static char *volatile copy;
static void *duplicates(void *p) { free(strdup(original)); /* race strdup */ return p; }
static void *changes_original(void *p) { original[8] = 0; /* race strdup */ return p; }

wchar_t wide[16];
static void *sets_wide(void *p) { wmemset(wide, L'w', n / 2); /* race wmemset */ return p; }
static void *reads_wide(void *p) { use(wide[n / 2 - 1]); /* race wmemset */ return p; }
static void *reads_behind_wide(void *p) { use(wide[n / 2]); return p; }

// What a thread was handed with its creation, and what it handed back.
static void *owns(void *p) { strcpy(p, "mine"); return p; }

static char *volatile gone;
static void *frees(void *p)
{
	gone = p;
	free(p); // uaf memset_after_free
	memset(gone, 1, n); // uaf memset_after_free
	return 0;
}

int main(void)
{
	char own[16] = "yours";
	pthread_t t;
	both(copies, reads);
	both(copies_below, writes_above);
	both(moves, moves_too);
	both(sets, reads_word);
	both(sets_locked, compares_locked);
	both(compares, changes);
	both(compares, changes_behind);
	both(compares_names, renames);
	both(measures, continues);
	both(finds, shortens);
	both(finds_first, changes_rest);
	both(copies_padded, reads_pad);
	both(copies_padded, reads_behind_pad);
	both(duplicates, changes_original);
	both(sets_wide, reads_wide);
	both(sets_wide, reads_behind_wide);
	for (int i = 0; i < 3; i++) {
		strcat(own, "!");
		pthread_create(&t, 0, owns, own);
		pthread_join(t, 0);
		puts(own);
	}
	frees(malloc(100));
	copy = strdup(own);
	free(copy);
	return 0;
}
