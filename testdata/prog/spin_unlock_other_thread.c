// A spin lock unlocked by a thread that does not hold it.
// ripstop: verdict unlock-not-owner objects=lock frames=thief,main
// ripstop: epochs none
#include <pthread.h>
#include <stdio.h>

static pthread_spinlock_t lock;

static void *thief(void *arg)
{
	pthread_spin_unlock(&lock);
	return arg;
}

int main(void)
{
	pthread_t t;
	pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
	pthread_spin_lock(&lock);
	pthread_create(&t, NULL, thief, NULL);
	pthread_join(t, NULL);
	puts("done");
	return 0;
}
