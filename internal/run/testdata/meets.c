/* Threads that wait for one initialiser after the other, and take locks of the heap right behind each: what they ask for is of another size each time. Then the program aborts. */
#include <pthread.h>
#include <stdlib.h>
#include <time.h>

enum { THREADS = 6, ROUNDS = 24 };

static pthread_once_t once[ROUNDS];
static pthread_barrier_t barrier;

static void make(void) { nanosleep(&(struct timespec){0, 300000}, NULL); }

static void *work(void *arg)
{
	for (unsigned i = 0; i < ROUNDS; i++) {
		pthread_barrier_wait(&barrier);
		pthread_once(&once[i], make);
		*(char *volatile *)arg = malloc(200 + 300 * i);
		free(*(char **)arg);
	}
	return NULL;
}

int main(void)
{
	pthread_t thread[THREADS];
	char *block[THREADS];
	pthread_barrier_init(&barrier, NULL, THREADS);
	for (unsigned i = 0; i < ROUNDS; i++)
		once[i] = (pthread_once_t)PTHREAD_ONCE_INIT;
	for (unsigned i = 0; i < THREADS; i++)
		pthread_create(&thread[i], NULL, work, &block[i]);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	abort();
}
