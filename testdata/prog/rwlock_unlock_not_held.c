// A rwlock unlocked by a thread that does not hold it while another reads.
// ripstop: verdict rwlock-unlock-not-held objects=table frames=thief
// ripstop: epochs none
#include <pthread.h>
#include <stdio.h>

static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;

static void *thief(void *arg)
{
	pthread_rwlock_unlock(&table);
	return arg;
}

int main(void)
{
	pthread_t t;
	pthread_rwlock_rdlock(&table);
	pthread_create(&t, NULL, thief, NULL);
	pthread_join(t, NULL);
	puts("done");
	return 0;
}
