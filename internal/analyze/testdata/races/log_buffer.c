// Register indirect: two threads append to one log, as in apache-25520 and cherokee.
#include "race.h"

struct log {
	pthread_mutex_t lock;
	long used;
	char text[256];
};

static void *logs(void *p)
{
	struct log *l = p;
	long own[8] = {0};
	for (int i = 0; i < ROUNDS; i++) {
		long c = work(own, 5) & 127;
		LOCK(&l->lock);
		l->text[l->used++ & 255] = (char)c; // race
		UNLOCK(&l->lock);
	}
	return p;
}

void log_buffer(void)
{
	struct log *l = calloc(1, sizeof *l);
	both(logs, logs, l);
	free(l);
}
