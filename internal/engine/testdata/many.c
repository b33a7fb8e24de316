/* many.c: many threads, one after the other. */
#include <pthread.h>
#include <stdio.h>

static void *same(void *p) { return p; }

int main(void)
{
	long sum = 0;
	for (long i = 0; i < 50; i++) {
		pthread_t t;
		void *r;
		pthread_create(&t, NULL, same, (void *)i);
		pthread_join(t, &r);
		sum += (long)r;
	}
	printf("%ld\n", sum);
	return 0;
}
