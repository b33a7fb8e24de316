// Relative to the program counter: a flag by which one thread stops another, as in pfscan.
#include "race.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int stop;

static void *runs(void *p)
{
	long own[8] = {0};
	for (int i = 0; i < ROUNDS; i++) {
		LOCK(&lock);
		int s = stop; // race
		UNLOCK(&lock);
		if (s) // race
			break;
		work(own, 5);
	}
	return p;
}

static void *stops(void *p)
{
	long own[8] = {0};
	for (int i = 0; i < ROUNDS; i++)
		work(own, 5);
	LOCK(&lock);
	stop = 1; // race
	UNLOCK(&lock);
	work(own, 200);
	return p;
}

void stop_flag(void) { both(runs, stops, 0); }
