// A thread that was joined is detached.
// ripstop: verdict double-detach frames=main
#include <pthread.h>
#include <stdio.h>

static void *work(void *arg) { return arg; }

int main(void)
{
	pthread_t t;
	pthread_create(&t, NULL, work, NULL);
	pthread_join(t, NULL);
	pthread_detach(t);
	puts("done");
	return 0;
}
