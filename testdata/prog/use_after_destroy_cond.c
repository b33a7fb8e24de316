// A condition used after it was destroyed.
// ripstop: verdict use-after-destroy objects=object frames=main
// ripstop: epochs none
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>

static pthread_cond_t object;

int main(void)
{
	pthread_cond_init(&object, NULL);
	pthread_cond_destroy(&object);
	pthread_cond_signal(&object);
	puts("done");
	return 0;
}
