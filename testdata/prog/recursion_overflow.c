// A recursive mutex locked more often than it can count. Four billion locks take too long: the counter is set to its end.
// ripstop: verdict recursion-overflow objects=lock frames=main
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

int main(void)
{
	pthread_mutex_lock(&lock);
	lock.__data.__count = UINT_MAX;
	int err = pthread_mutex_lock(&lock);
	lock.__data.__count = 1;
	pthread_mutex_unlock(&lock);
	puts(err == EAGAIN ? "refused" : "not refused");
	return 0;
}
