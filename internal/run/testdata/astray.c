// A crash whose re-execution goes another way for sure, as which mutex is taken is up to how far another thread has counted, and that counts on until the one that goes astray lets it, which it never does.
#include <pthread.h>
#include <time.h>

static volatile int go;
static volatile long sum;
static int *volatile nowhere;
static pthread_mutex_t locks[1 << 12];

static void nap(long ms)
{
	struct timespec ts = {ms / 1000, ms % 1000 * 1000000};
	nanosleep(&ts, NULL);
}

static void *computer(void *arg)
{
	while (!go)
		sum++;
	nap(100000);
	return arg;
}

int main(void)
{
	pthread_t t;
	pthread_create(&t, NULL, computer, NULL);
	nap(1000);
	pthread_mutex_t *lock = &locks[(unsigned long)sum % (1 << 12)];
	pthread_mutex_lock(lock);
	pthread_mutex_unlock(lock);
	go = 1;
	nap(50);
	return *nowhere;
}
