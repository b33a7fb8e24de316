// Two threads add to one counter under one lock.
#include <pthread.h>
#include <stdio.h>

long counter;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *add(void *arg) {
	(void)arg;
	for (int i = 0; i < 40; i++) {
		pthread_mutex_lock(&lock);
		counter = counter + 1;
		pthread_mutex_unlock(&lock);
	}
	return 0;
}

int main(void) {
	pthread_t t[2];
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], 0, add, 0);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], 0);
	printf("%ld\n", counter);
	return 3;
}
