// Three threads that take turns by a mutex and a condition, with a barrier at the end.
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { threads = 3, rounds = 12 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static pthread_barrier_t end;
static int turn, sum;

static void *run(void *arg) {
	int me = (int)(long)arg;
	char text[64];
	for (int i = 0; i < rounds; i++) {
		pthread_mutex_lock(&lock);
		while (turn % threads != me) {
			pthread_cond_wait(&changed, &lock);
		}
		turn++;
		sum += snprintf(text, sizeof(text), "%d %d", me, i) + (int)strlen(text);
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&lock);
	}
	pthread_barrier_wait(&end);
	return NULL;
}

int main(void) {
	pthread_t t[threads];
	pthread_barrier_init(&end, NULL, threads);
	for (long i = 0; i < threads; i++) {
		pthread_create(&t[i], NULL, run, (void *)i);
	}
	for (int i = 0; i < threads; i++) {
		pthread_join(t[i], NULL);
	}
	return sum == 0;
}
