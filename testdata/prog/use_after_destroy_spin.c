// A spin lock used after it was destroyed.
// ripstop: verdict use-after-destroy objects=object frames=main
// ripstop: epochs none
#include <pthread.h>
#include <stdio.h>

static pthread_spinlock_t object;

int main(void)
{
	pthread_spin_init(&object, PTHREAD_PROCESS_PRIVATE);
	pthread_spin_destroy(&object);
	pthread_spin_lock(&object);
	puts("done");
	return 0;
}
