// Takes a lock and says so, without end: each line is written when its lock and unlock are over. Other threads make events meanwhile.
#include <pthread.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, other = PTHREAD_MUTEX_INITIALIZER;

static void *busy(void *arg)
{
	for (;;) {
		pthread_mutex_lock(&other);
		pthread_mutex_unlock(&other);
	}
	return arg;
}

int main(void)
{
	pthread_t t[2];
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, busy, NULL);
	for (;;) {
		pthread_mutex_lock(&lock);
		pthread_mutex_unlock(&lock);
		if (write(1, "x\n", 2) != 2)
			return 1;
		usleep(1000);
	}
}
