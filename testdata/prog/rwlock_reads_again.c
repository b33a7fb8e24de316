// A reader reads again while a writer waits; by default readers go first: no deadlock.
// ripstop: verdict none
// ripstop: epochs hangs
#define _GNU_SOURCE
#include <pthread.h>
#include "blocked.h"

static pthread_rwlock_t table = PTHREAD_RWLOCK_INITIALIZER;
static pid_t writer_tid;

static void *writer(void *arg)
{
	writer_tid = gettid();
	reach(1);
	pthread_rwlock_wrlock(&table);
	pthread_rwlock_unlock(&table);
	return arg;
}

int main(void)
{
	pthread_t t;
	pthread_rwlock_rdlock(&table);
	pthread_create(&t, NULL, writer, NULL);
	await(1);
	await_blocked_on(writer_tid, &table, sizeof table);
	pthread_rwlock_rdlock(&table);
	pthread_rwlock_unlock(&table);
	pthread_rwlock_unlock(&table);
	pthread_join(t, NULL);
	puts("done");
	return 0;
}
