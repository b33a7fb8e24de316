// A thread ends with a mutex locked; the first thread locks it then.
// ripstop: verdict exit-holding-lock objects=lock frames=forgetful
// ripstop: verdict deadlock objects=lock frames=forgetful,main
// ripstop: hangs
// ripstop: epochs deadlock objects=lock frames=main
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void *forgetful(void *arg)
{
	pthread_mutex_lock(&lock);
	return arg;
}

int main(void)
{
	pthread_t t;
	pthread_create(&t, NULL, forgetful, NULL);
	pthread_join(t, NULL);
	pthread_mutex_lock(&lock);
	return 0;
}
