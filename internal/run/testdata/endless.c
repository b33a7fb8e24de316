// Two threads add without a lock. Then nothing more happens, for ever.
#include <pthread.h>
#include <unistd.h>

int x;

static void *add(void *p)
{
	x += 1;
	return p;
}

int main(void)
{
	pthread_t t[2];
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], 0, add, 0);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], 0);
	x = 0;
	for (;;)
		pause();
}
