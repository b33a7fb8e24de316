// A semaphore used as a lock, then taken twice by the only thread: nobody is left to post it.
// ripstop: verdict self-deadlock objects=lock frames=main
// ripstop: hangs
// ripstop: epochs hang objects=lock frames=main
#include <semaphore.h>

static sem_t lock;

int main(void)
{
	sem_init(&lock, 0, 1);
	sem_wait(&lock);
	sem_post(&lock);
	sem_wait(&lock);
	sem_wait(&lock);
	return 0;
}
