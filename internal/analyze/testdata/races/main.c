#include "race.h"

__attribute__((noinline)) long work(long *own, long n)
{
	long sum = 0;
	for (long i = 0; i < n; i++) {
		own[i & 7] += i;
		sum ^= own[(i + 3) & 7];
	}
	return sum;
}

__attribute__((noinline)) void both(void *(*one)(void *), void *(*two)(void *), void *arg)
{
	pthread_t t[2];
	pthread_create(&t[0], 0, one, arg);
	pthread_create(&t[1], 0, two, arg);
	pthread_join(t[0], 0);
	pthread_join(t[1], 0);
}

void stop_flag(void), byte_count(void), progress(void), histogram(void), log_buffer(void), request_stats(void), list_push(void), copy_words(void), references(void),
	limits(void), ring(void), chain(void);

int main(void)
{
	stop_flag();
	byte_count();
	progress();
	histogram();
	log_buffer();
	request_stats();
	list_push();
	copy_words();
	references();
	limits();
	ring();
	chain();
	return 0;
}
