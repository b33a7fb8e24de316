// A rwlock destroyed while a thread reads.
// ripstop: verdict destroy-locked objects=table frames=main
// ripstop: epochs none
#include <pthread.h>
#include <stdio.h>

static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;

int main(void)
{
	pthread_rwlock_rdlock(&table);
	pthread_rwlock_destroy(&table);
	puts("done");
	return 0;
}
