// A thread's memory, and with it its handle, serves the next thread: each is joined once.
// ripstop: verdict none
#include <pthread.h>
#include <stdio.h>

static void *work(void *arg) { return arg; }

int main(void)
{
	pthread_t before = 0;
	int same = 0;
	for (int i = 0; i < 50; i++) {
		pthread_t t;
		pthread_create(&t, NULL, work, NULL);
		pthread_join(t, NULL);
		same += pthread_equal(t, before) != 0;
		before = t;
	}
	puts(same > 0 ? "reused" : "not reused");
	return 0;
}
