// Four threads in a ring over four kinds of objects: a rwlock held for reading, a spin lock, a semaphore that began with 1, a C11 mutex. That the
// semaphore's taker is the only one who could post it is known when all threads are stuck, but the one that spins did not count as stuck,
// because it is not asleep: `run` let the program hang, and only `report` of a recording told it.
// ripstop: verdict deadlock objects=shared,spin,permit,plain frames=reader,spinner,taker,writer
// ripstop: hangs
// ripstop: epochs hangs
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <threads.h>
#include "order.h"

static pthread_rwlock_t shared = PTHREAD_RWLOCK_INITIALIZER;
static pthread_spinlock_t spin;
static sem_t permit;
static mtx_t plain;

static void *reader(void *arg)
{
	pthread_rwlock_rdlock(&shared);
	meet(4);
	pthread_spin_lock(&spin);
	return arg;
}

static void *spinner(void *arg)
{
	pthread_spin_lock(&spin);
	meet(4);
	sem_wait(&permit);
	return arg;
}

static void *taker(void *arg)
{
	sem_wait(&permit);
	meet(4);
	mtx_lock(&plain);
	return arg;
}

static void *writer(void *arg)
{
	mtx_lock(&plain);
	meet(4);
	pthread_rwlock_wrlock(&shared);
	return arg;
}

int main(void)
{
	pthread_spin_init(&spin, PTHREAD_PROCESS_PRIVATE);
	sem_init(&permit, 0, 1);
	mtx_init(&plain, mtx_plain);
	pthread_t t[3];
	pthread_create(&t[0], NULL, reader, NULL);
	pthread_create(&t[1], NULL, spinner, NULL);
	pthread_create(&t[2], NULL, taker, NULL);
	writer(NULL);
	return 0;
}
