// A rwlock unlocked twice by its writer.
// ripstop: verdict rwlock-unlock-not-held objects=table frames=main
#include <pthread.h>
#include <stdio.h>

static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;

int main(void)
{
	pthread_rwlock_wrlock(&table);
	pthread_rwlock_unlock(&table);
	pthread_rwlock_unlock(&table);
	puts("done");
	return 0;
}
