// A recursive mutex is unlocked once more than it was locked.
// ripstop: verdict unlock-not-locked objects=lock frames=main
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;

int main(void)
{
	pthread_mutex_lock(&lock);
	pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
	pthread_mutex_unlock(&lock);
	int err = pthread_mutex_unlock(&lock);
	puts(err == EPERM ? "refused" : "not refused");
	return 0;
}
