// Objects with a lock and a count in them: who drops the last reference destroys and frees the object right after its unlock, while the other thread
// may still be in its own. And semaphores that are destroyed and freed as soon as the wait returns, while the other is still in the post.
// ripstop: verdict none
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include "order.h"

enum { ROUNDS = 2000 };

struct object {
	pthread_mutex_t lock;
	int references;
};

static struct object *objects[ROUNDS];
static sem_t *sems[ROUNDS];

static void drop(struct object *o)
{
	pthread_mutex_lock(&o->lock);
	int left = --o->references;
	pthread_mutex_unlock(&o->lock);
	if (left == 0) {
		pthread_mutex_destroy(&o->lock);
		free(o);
	}
}

static void *other(void *arg)
{
	for (int i = 0; i < ROUNDS; i++) {
		await(2 * i + 1);
		drop(objects[i]);
		await(2 * i + 2);
		sem_post(sems[i]);
	}
	return arg;
}

int main(void)
{
	pthread_t t;
	pthread_create(&t, NULL, other, NULL);
	for (int i = 0; i < ROUNDS; i++) {
		objects[i] = malloc(sizeof *objects[i]);
		pthread_mutex_init(&objects[i]->lock, NULL);
		objects[i]->references = 2;
		sems[i] = malloc(sizeof *sems[i]);
		sem_init(sems[i], 0, 0);
		reach(2 * i + 1);
		drop(objects[i]);
		reach(2 * i + 2);
		sem_wait(sems[i]);
		sem_destroy(sems[i]);
		free(sems[i]);
	}
	pthread_join(t, NULL);
	puts("done");
	return 0;
}
