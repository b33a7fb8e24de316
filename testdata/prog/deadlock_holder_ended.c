// A thread ends with a rwlock held for reading; another waits to write.
// ripstop: verdict exit-holding-lock objects=table frames=forgetful
// ripstop: verdict deadlock objects=table frames=forgetful,main
// ripstop: hangs
// ripstop: epochs deadlock objects=table frames=main
#include <pthread.h>

static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;

static void *forgetful(void *arg)
{
	pthread_rwlock_rdlock(&table);
	return arg;
}

int main(void)
{
	pthread_t t;
	pthread_create(&t, NULL, forgetful, NULL);
	pthread_join(t, NULL);
	pthread_rwlock_wrlock(&table);
	return 0;
}
