// threads N: N threads at once, each of which takes nested locks, allocates and waits for the others: for measuring memory.
#include <pthread.h>
#include <stdlib.h>

static pthread_barrier_t all;
static pthread_mutex_t outer = PTHREAD_MUTEX_INITIALIZER, inner = PTHREAD_MUTEX_INITIALIZER;

static void *run(void *arg) {
	for (int i = 0; i < 2000; i++) {
		pthread_mutex_lock(&outer);
		pthread_mutex_lock(&inner);
		free(malloc(100));
		pthread_mutex_unlock(&inner);
		pthread_mutex_unlock(&outer);
	}
	pthread_barrier_wait(&all);
	return arg;
}

int main(int argc, char **argv) {
	int n = argc > 1 ? atoi(argv[1]) : 0;
	pthread_t *t = calloc(n, sizeof *t);
	if (n <= 0 || t == NULL) return 2;
	pthread_barrier_init(&all, NULL, n);
	for (int i = 0; i < n; i++)
		if (pthread_create(&t[i], NULL, run, NULL) != 0) return 1;
	for (int i = 0; i < n; i++) pthread_join(t[i], NULL);
	pthread_barrier_destroy(&all);
	free(t);
	return 0;
}
