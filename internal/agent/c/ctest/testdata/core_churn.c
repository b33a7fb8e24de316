// argv[1] threads at the same time, argv[2] times over; each takes a lock of its own twice.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static pthread_barrier_t all;
static int use_barrier;
static void *run(void *p)
{
	pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
	if (use_barrier)
		pthread_barrier_wait(&all);
	for (int i = 0; i < 2; i++) {
		pthread_mutex_lock(&m);
		pthread_mutex_unlock(&m);
	}
	return p;
}
int main(int argc, char **argv)
{
	int n = atoi(argv[1]), times = atoi(argv[2]), bad = 0;
	pthread_t *t = calloc(n, sizeof *t);
	pthread_attr_t a;
	pthread_attr_init(&a);
	pthread_attr_setstacksize(&a, 65536);
	use_barrier = n > 1;
	pthread_barrier_init(&all, NULL, n);
	for (int k = 0; k < times; k++) {
		for (int i = 0; i < n; i++)
			bad += pthread_create(&t[i], &a, run, (void *)(long)i) != 0;
		for (int i = 0; i < n; i++) {
			void *v;
			bad += pthread_join(t[i], &v) != 0 || v != (void *)(long)i;
		}
	}
	printf("bad %d\n", bad);
	return argc > 3 ? 3 : 0;
}
