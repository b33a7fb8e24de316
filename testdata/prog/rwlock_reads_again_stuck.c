// A reader reads again behind a waiting writer who goes first: the writer waits for the first reading, the second for the writer.
// ripstop: verdict deadlock objects=table frames=writer,main
// ripstop: hangs
// ripstop: epochs hangs
#define _GNU_SOURCE
#include <pthread.h>
#include "blocked.h"

static pthread_rwlock_t table = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
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
	return 0;
}
