// Hand over hand along a list by many threads, always front to back; along another one from either end, but only behind a gate.
// ripstop: verdict none
#include <pthread.h>
#include <stdio.h>

enum { NODES = 20, THREADS = 4, ROUNDS = 100 };

static struct node {
	pthread_mutex_t lock;
	long value;
} forward[NODES], gated[NODES];
static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;

static void walk(struct node *n, int at, int step)
{
	pthread_mutex_lock(&n[at].lock);
	for (; at + step >= 0 && at + step < NODES; at += step) {
		n[at].value++;
		pthread_mutex_lock(&n[at + step].lock);
		pthread_mutex_unlock(&n[at].lock);
	}
	n[at].value++;
	pthread_mutex_unlock(&n[at].lock);
}

static void *walker(void *arg)
{
	for (long i = 0; i < ROUNDS; i++) {
		walk(forward, 0, 1);
		pthread_mutex_lock(&gate);
		if ((i + (long)arg) % 2)
			walk(gated, 0, 1);
		else
			walk(gated, NODES - 1, -1);
		pthread_mutex_unlock(&gate);
	}
	return NULL;
}

int main(void)
{
	pthread_t t[THREADS];
	for (int i = 0; i < NODES; i++) {
		pthread_mutex_init(&forward[i].lock, NULL);
		pthread_mutex_init(&gated[i].lock, NULL);
	}
	for (long i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, walker, (void *)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	long sum = 0;
	for (int i = 0; i < NODES; i++)
		sum += forward[i].value + gated[i].value;
	printf("%ld\n", sum);
	return 0;
}
