// The next owner of a robust mutex whose owner died unlocks it without repairing it: unusable from then on.
// ripstop: verdict owner-died objects=lock frames=main
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t lock;

static void *die_with_it(void *arg)
{
	pthread_mutex_lock(&lock);
	return arg;
}

int main(void)
{
	pthread_mutexattr_t attr;
	pthread_t t;
	pthread_mutexattr_init(&attr);
	pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&lock, &attr);
	pthread_create(&t, NULL, die_with_it, NULL);
	pthread_join(t, NULL);
	int first = pthread_mutex_lock(&lock);
	pthread_mutex_unlock(&lock);
	int second = pthread_mutex_lock(&lock);
	puts(first == EOWNERDEAD && second == ENOTRECOVERABLE ? "unusable" : "otherwise");
	return 0;
}
