/* Two threads deadlock on two locks; the main thread joins them. With an argument the main thread goes on instead: it waits for input and ends
 * with status 4. */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, second = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t both;

static void *one(void *arg)
{
	pthread_mutex_lock(&first);
	pthread_barrier_wait(&both);
	pthread_mutex_lock(&second);
	return arg;
}

static void *other(void *arg)
{
	pthread_mutex_lock(&second);
	pthread_barrier_wait(&both);
	pthread_mutex_lock(&first);
	return arg;
}

int main(int argc, char **argv)
{
	(void)argv;
	pthread_t t, u;
	pthread_barrier_init(&both, NULL, 2);
	pthread_create(&t, NULL, one, NULL);
	pthread_create(&u, NULL, other, NULL);
	if (argc > 1) {
		char c;
		puts("ready");
		fflush(stdout);
		while (read(0, &c, 1) > 0)
			;
		_exit(4);
	}
	pthread_join(t, NULL);
	pthread_join(u, NULL);
	return 0;
}
