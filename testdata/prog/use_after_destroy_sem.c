// A semaphore used after it was destroyed.
// ripstop: verdict use-after-destroy objects=object frames=main
// ripstop: epochs none
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>

static sem_t object;

int main(void)
{
	sem_init(&object, 0, 1);
	sem_destroy(&object);
	sem_post(&object);
	puts("done");
	return 0;
}
