// A mutex with priority inheritance unlocked by a thread that does not hold it, and once more by the one that did. The kernel refuses both (EPERM); that was taken
// for an answer that a program may ask for, as of an errorcheck mutex, and nothing was said. POSIX leaves it undefined, and glibc has spoilt its owner by then.
// ripstop: verdict unlock-not-owner objects=lock_a frames=thief,main
// ripstop: verdict unlock-not-locked objects=lock_a frames=main
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>

static pthread_mutex_t lock_a;

static void *thief(void *arg)
{
	printf("%d\n", pthread_mutex_unlock(&lock_a));
	return arg;
}

int main(void)
{
	pthread_mutexattr_t a;
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setprotocol(&a, PTHREAD_PRIO_INHERIT);
	pthread_mutex_init(&lock_a, &a);
	pthread_t t;
	pthread_mutex_lock(&lock_a);
	pthread_create(&t, NULL, thief, NULL);
	pthread_join(t, NULL);
	printf("%d\n", pthread_mutex_unlock(&lock_a));
	printf("%d\n", pthread_mutex_unlock(&lock_a));
	puts("done");
	return 0;
}
