// A barrier destroyed by the first thread that leaves it: destroy waits for the others, POSIX allows that.
// ripstop: verdict none
#include <pthread.h>
#include <stdio.h>

static void *arrive(void *arg)
{
	pthread_barrier_wait(arg);
	return NULL;
}

int main(void)
{
	for (int i = 0; i < 50; i++) {
		pthread_barrier_t phase;
		pthread_t t[3];
		pthread_barrier_init(&phase, NULL, 4);
		for (int k = 0; k < 3; k++)
			pthread_create(&t[k], NULL, arrive, &phase);
		pthread_barrier_wait(&phase);
		pthread_barrier_destroy(&phase);
		for (int k = 0; k < 3; k++)
			pthread_join(t[k], NULL);
	}
	puts("done");
	return 0;
}
