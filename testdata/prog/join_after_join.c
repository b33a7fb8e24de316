// A thread that was joined is joined again.
// ripstop: verdict double-join frames=main
#include <pthread.h>
#include <stdio.h>

static void *work(void *arg) { return arg; }

int main(void)
{
	pthread_t t;
	pthread_create(&t, NULL, work, NULL);
	pthread_join(t, NULL);
	pthread_join(t, NULL);
	puts("done");
	return 0;
}
