// Memory indirect: references to an object that is found by a global pointer, as in apache-21287.
#include "race.h"

struct object {
	long data, references;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct object *object;

static void *drops(void *p)
{
	long own[8] = {0};
	for (int i = 0; i < ROUNDS; i++) {
		work(own, 5);
		LOCK(&lock);
		object->references--; // race
		UNLOCK(&lock);
	}
	return p;
}

void references(void)
{
	object = calloc(1, sizeof *object);
	both(drops, drops, 0);
	free(object);
}
