/* A lock of a mutex that lies nowhere: it is a member of what a null pointer points to. */
#include <pthread.h>

struct registry { long entries; pthread_mutex_t mutex; };

static struct registry *volatile registry;

static __attribute__((noinline)) void enter(void)
{
	pthread_mutex_lock(&registry->mutex);
	registry->entries++;
	pthread_mutex_unlock(&registry->mutex);
}

static void *work(void *arg)
{
	enter();
	return arg;
}

int main(void)
{
	pthread_t t;
	pthread_create(&t, NULL, work, NULL);
	pthread_join(t, NULL);
	return 0;
}
