// A plug-in with a lock and an initialiser of its own.
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static long base;

static void begin(void) { base = 1; }

long work(long n);
long work(long n)
{
	pthread_once(&once, begin);
	pthread_mutex_lock(&lock);
	long r = base + n;
	pthread_mutex_unlock(&lock);
	return r;
}
