// A cycle of readers through a waiting writer, who goes first: main reads the one and wants to write the other, whose reader wants to read the one
// behind its writer.
// ripstop: verdict deadlock objects=map_lock,index_lock frames=reader,main
// ripstop: hangs
// ripstop: epochs hangs
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>
#include "blocked.h"

static pthread_rwlock_t map_lock, index_lock;
static volatile pid_t writer_tid;

static void *writer(void *arg)
{
	writer_tid = gettid();
	reach(1);
	pthread_rwlock_wrlock(&map_lock);
	return arg;
}

static void *reader(void *arg)
{
	pthread_rwlock_rdlock(&index_lock);
	reach(2);
	pthread_rwlock_rdlock(&map_lock);
	return arg;
}

int main(void)
{
	pthread_t t1, t2;
	pthread_rwlockattr_t a;
	pthread_rwlockattr_init(&a);
	pthread_rwlockattr_setkind_np(&a, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
	pthread_rwlock_init(&map_lock, &a);
	pthread_rwlock_init(&index_lock, &a);
	pthread_rwlock_rdlock(&map_lock);
	pthread_create(&t1, NULL, writer, NULL);
	await(1);
	await_blocked_on(writer_tid, &map_lock, sizeof map_lock);
	pthread_create(&t2, NULL, reader, NULL);
	await(2);
	pthread_rwlock_wrlock(&index_lock);
	return 0;
}
