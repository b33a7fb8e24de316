// C11 threads, recursive and timed mutexes, conditions, once, thread-specific storage, used rightly.
// ripstop: verdict none
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>
#include "order.h"

static mtx_t plain, recursive;
static cnd_t ready;
static once_flag once = ONCE_FLAG_INIT;
static tss_t key;
static int go, sum;

static void setup(void) { sum = 1; }
static void forget(void *p) { free(p); }

static int work(void *arg)
{
	(void)arg;
	call_once(&once, setup);
	tss_set(key, malloc(8));
	mtx_lock(&plain);
	while (!go)
		cnd_wait(&ready, &plain);
	sum++;
	mtx_unlock(&plain);
	mtx_lock(&recursive);
	mtx_lock(&recursive);
	mtx_unlock(&recursive);
	mtx_unlock(&recursive);
	return 0;
}

int main(void)
{
	thrd_t t[4];
	mtx_init(&plain, mtx_timed);
	mtx_init(&recursive, mtx_plain | mtx_recursive);
	cnd_init(&ready);
	tss_create(&key, forget);
	for (int i = 0; i < 4; i++)
		thrd_create(&t[i], work, NULL);
	mtx_lock(&plain);
	go = 1;
	cnd_broadcast(&ready);
	mtx_unlock(&plain);
	for (int i = 0; i < 4; i++)
		thrd_join(t[i], NULL);
	cnd_destroy(&ready);
	mtx_destroy(&plain);
	mtx_destroy(&recursive);
	tss_delete(key);
	printf("%d\n", sum);
	return 0;
}
