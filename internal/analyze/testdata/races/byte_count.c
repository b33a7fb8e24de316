// Relative to the program counter: bytes that all threads have written are summed up, as in aget.
#include "race.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long total;

static void *writes(void *p)
{
	long own[8] = {0};
	for (int i = 0; i < ROUNDS; i++) {
		long n = work(own, 5) & 7;
		LOCK(&lock);
		total += n; // race
		UNLOCK(&lock);
	}
	return p;
}

void byte_count(void) { both(writes, writes, 0); }
