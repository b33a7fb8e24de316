// Three threads meet at a barrier for two: the third waits for a fourth that does not exist.
// ripstop: verdict deadlock objects=phase frames=arriver
// ripstop: hangs
#include <pthread.h>

static pthread_barrier_t phase;

static void *arriver(void *arg)
{
	pthread_barrier_wait(&phase);
	return arg;
}

int main(void)
{
	pthread_t t[3];
	pthread_barrier_init(&phase, NULL, 2);
	for (int i = 0; i < 3; i++)
		pthread_create(&t[i], NULL, arriver, NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	return 0;
}
