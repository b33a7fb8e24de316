// Register indirect: requests and errors of a server, counted by whoever serves.
#include "race.h"

struct stats {
	pthread_mutex_t lock;
	long requests, errors;
};

static void *serves(void *p)
{
	struct stats *s = p;
	long own[8] = {0};
	for (int i = 0; i < ROUNDS; i++) {
		if (work(own, 5) & 1) {
			LOCK(&s->lock);
			s->errors++; // race
			UNLOCK(&s->lock);
		}
		LOCK(&s->lock);
		s->requests++; // race
		UNLOCK(&s->lock);
	}
	return p;
}

void request_stats(void)
{
	struct stats *s = calloc(1, sizeof *s);
	both(serves, serves, s);
	free(s);
}
