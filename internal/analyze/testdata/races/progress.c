// Relative to the program counter: the last one to tell its progress wins, as in pbzip2.
#include "race.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
int percent;

static void *tells(void *p)
{
	long own[8] = {0};
	for (int i = 0; i < ROUNDS; i++) {
		work(own, 5);
		LOCK(&lock);
		percent = i; // race
		UNLOCK(&lock);
	}
	return p;
}

void progress(void) { both(tells, tells, 0); }
