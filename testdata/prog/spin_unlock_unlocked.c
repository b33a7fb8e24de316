// A spin lock unlocked twice.
// ripstop: verdict unlock-not-locked objects=lock frames=main
#include <pthread.h>
#include <stdio.h>

static pthread_spinlock_t lock;

int main(void)
{
	pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
	pthread_spin_lock(&lock);
	pthread_spin_unlock(&lock);
	pthread_spin_unlock(&lock);
	puts("done");
	return 0;
}
