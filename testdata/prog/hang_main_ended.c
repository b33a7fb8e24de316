// main has ended by pthread_exit, and the thread that is left waits for a signal that nobody is left to send.
// ripstop: verdict hang objects=ready frames=waiter
// ripstop: hangs
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t ready = PTHREAD_COND_INITIALIZER;

static void *waiter(void *arg)
{
	pthread_mutex_lock(&lock);
	pthread_cond_wait(&ready, &lock);
	pthread_mutex_unlock(&lock);
	return arg;
}

int main(void)
{
	pthread_t t;
	pthread_create(&t, NULL, waiter, NULL);
	pthread_detach(t);
	pthread_exit(NULL);
}
