// Memory indirect, twice: a setting changes while it is read, as in mysql-3596.
#include "race.h"

struct limits {
	long least, most;
};
struct config {
	long version;
	struct limits *limits;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct config *config;

static void *sets(void *p)
{
	long own[8] = {0};
	for (int i = 0; i < ROUNDS; i++) {
		long v = work(own, 5);
		LOCK(&lock);
		config->limits->most = v; // race
		UNLOCK(&lock);
	}
	return p;
}

static void *obeys(void *unused)
{
	(void)unused;
	long own[8] = {0}, n = 0;
	for (int i = 0; i < ROUNDS; i++) {
		long v = work(own, 5);
		LOCK(&lock);
		n += v < config->limits->most; // race
		UNLOCK(&lock);
	}
	return (void *)(n & 1);
}

void limits(void)
{
	config = calloc(1, sizeof *config);
	config->limits = calloc(1, sizeof *config->limits);
	both(sets, obeys, 0);
	free(config->limits);
	free(config);
}
