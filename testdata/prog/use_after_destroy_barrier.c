// A barrier used after it was destroyed.
// ripstop: verdict use-after-destroy objects=object frames=main
// ripstop: epochs none
#include <pthread.h>
#include <stdio.h>

static pthread_barrier_t object;

int main(void)
{
	pthread_barrier_init(&object, NULL, 1);
	pthread_barrier_wait(&object);
	pthread_barrier_destroy(&object);
	pthread_barrier_wait(&object);
	puts("done");
	return 0;
}
