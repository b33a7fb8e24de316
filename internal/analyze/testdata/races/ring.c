// Memory indirect: a queue's place for the next one, as in pbzip2 and mysql-644.
#include "race.h"

struct queue {
	long head;
	long *slots;
};
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct queue *queue;

static void *enters(void *p)
{
	long own[8] = {0};
	for (int i = 0; i < ROUNDS; i++) {
		long v = work(own, 5);
		LOCK(&lock);
		queue->slots[queue->head & 31] = v; // race
		queue->head++; // race
		UNLOCK(&lock);
	}
	return p;
}

void ring(void)
{
	queue = calloc(1, sizeof *queue);
	queue->slots = calloc(32, sizeof *queue->slots);
	both(enters, enters, 0);
	free(queue->slots);
	free(queue);
}
