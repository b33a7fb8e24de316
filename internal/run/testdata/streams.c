// Two threads with 15,000 streams each, and a lock of libc's in each of them. Prints how many.
#include <pthread.h>
#include <stdio.h>
#include <time.h>

enum { STREAMS = 15000 };
static char text[16];
static int opened[2];

static void *work(void *arg)
{
	static FILE *stream[2][STREAMS];
	struct timespec soon = {0, 1000000};
	int me = *(int *)arg, n = 0;
	for (; n < STREAMS && (stream[me][n] = fmemopen(text, sizeof text, "r")); n++) {
		flockfile(stream[me][n]);
		funlockfile(stream[me][n]);
		if (n % 100 == 0)
			nanosleep(&soon, NULL);
	}
	opened[me] = n;
	while (n > 0) // the last one opened is the first that libc finds
		fclose(stream[me][--n]);
	for (int i = 0; i < 200; i++)
		nanosleep(&soon, NULL);
	return NULL;
}

int main(void)
{
	int numbers[2] = {0, 1};
	pthread_t other;
	if (pthread_create(&other, NULL, work, &numbers[1]))
		return 1;
	work(&numbers[0]);
	pthread_join(other, NULL);
	printf("%d %d\n", opened[0], opened[1]);
	return 0;
}
