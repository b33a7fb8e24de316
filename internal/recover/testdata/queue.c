// Producers and consumers around a queue under a lock with conditions, and a tree that is built and walked by all: synchronised as programs are.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { SLOTS = 16 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t some = PTHREAD_COND_INITIALIZER, room = PTHREAD_COND_INITIALIZER;
static long slots[SLOTS], head, tail, items = 100;

struct node {
	struct node *less, *more;
	long key, count;
};
static struct node *root;

static void add(long key) {
	struct node **at = &root;
	while (*at && (*at)->key != key)
		at = key < (*at)->key ? &(*at)->less : &(*at)->more;
	if (!*at) {
		*at = calloc(1, sizeof **at);
		(*at)->key = key;
	}
	(*at)->count++;
}

static void *produce(void *arg) {
	long id = (long)arg;
	for (long i = 0; i < items; i++) {
		pthread_mutex_lock(&lock);
		while (head - tail == SLOTS)
			pthread_cond_wait(&room, &lock);
		slots[head++ % SLOTS] = (i * 7919 + id * 31) % 97;
		pthread_cond_signal(&some);
		pthread_mutex_unlock(&lock);
	}
	return NULL;
}

static void *consume(void *arg) {
	long *sum = arg;
	for (long i = 0; i < items; i++) {
		pthread_mutex_lock(&lock);
		while (head == tail)
			pthread_cond_wait(&some, &lock);
		long v = slots[tail++ % SLOTS];
		add(v);
		pthread_cond_signal(&room);
		pthread_mutex_unlock(&lock);
		*sum += v;
	}
	return NULL;
}

static long total(struct node *n) { return n ? n->count + total(n->less) + total(n->more) : 0; }

int main(void) {
	pthread_t t[4];
	long sums[2] = {0, 0};
	for (long i = 0; i < 2; i++) {
		pthread_create(&t[i], NULL, produce, (void *)i);
		pthread_create(&t[2 + i], NULL, consume, &sums[i]);
	}
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	printf("%ld %ld\n", sums[0] + sums[1], total(root));
	return 0;
}
