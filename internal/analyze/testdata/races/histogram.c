// Register indirect: a counter is chosen by an index.
#include "race.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long counts[2];

static void *counts_words(void *p)
{
	long own[8] = {0};
	for (int i = 0; i < ROUNDS; i++) {
		long which = work(own, 5) & 1;
		LOCK(&lock);
		counts[which]++; // race
		UNLOCK(&lock);
	}
	return p;
}

void histogram(void) { both(counts_words, counts_words, 0); }
