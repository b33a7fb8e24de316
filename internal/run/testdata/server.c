/* Three threads take a lock 1000 times each and then never end; the program does. */
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int ready;

static void *serve(void *arg)
{
	for (int i = 0; i < 1000; i++) {
		pthread_mutex_lock(&lock);
		pthread_mutex_unlock(&lock);
	}
	__atomic_fetch_add(&ready, 1, __ATOMIC_RELEASE);
	for (;;)
		pause();
	return arg;
}

int main(void)
{
	pthread_t t;
	for (int i = 0; i < 3; i++)
		pthread_create(&t, NULL, serve, NULL);
	while (__atomic_load_n(&ready, __ATOMIC_ACQUIRE) < 3)
		sched_yield();
	return 0;
}
