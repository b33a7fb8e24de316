// A reader wants to become a writer without letting go: it waits for itself.
// ripstop: verdict self-deadlock objects=table frames=upgrade
// ripstop: hangs
// ripstop: epochs deadlock objects=table frames=upgrade
#include <pthread.h>

static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;

static __attribute__((noipa)) void upgrade(void)
{
	pthread_rwlock_wrlock(&table);
	pthread_rwlock_unlock(&table);
}

int main(void)
{
	pthread_rwlock_rdlock(&table);
	upgrade();
	return 0;
}
