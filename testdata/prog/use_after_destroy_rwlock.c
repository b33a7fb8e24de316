// A rwlock used after it was destroyed.
// ripstop: verdict use-after-destroy objects=object frames=main
// ripstop: epochs none
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>

static pthread_rwlock_t object;

int main(void)
{
	pthread_rwlock_init(&object, NULL);
	pthread_rwlock_destroy(&object);
	pthread_rwlock_rdlock(&object);
	puts("done");
	return 0;
}
