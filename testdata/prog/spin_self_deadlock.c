// A spin lock locked twice by its owner, who burns its processor for ever.
// ripstop: verdict self-deadlock objects=lock frames=main
// ripstop: hangs
// ripstop: epochs hangs
#include <pthread.h>

static pthread_spinlock_t lock;

int main(void)
{
	pthread_spin_init(&lock, PTHREAD_PROCESS_PRIVATE);
	pthread_spin_lock(&lock);
	pthread_spin_lock(&lock);
	return 0;
}
