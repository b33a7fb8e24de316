#include "race.h"

__attribute__((noinline)) long work(long *own, long n)
{
	long sum = 0;
#ifdef TIMED
	n *= 40;
#endif
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

#ifdef TIMED
int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*run)(void);
	} all[] = {{"stop_flag", stop_flag}, {"byte_count", byte_count}, {"progress", progress}, {"histogram", histogram}, {"log_buffer", log_buffer}, {"request_stats", request_stats},
		{"list_push", list_push}, {"copy_words", copy_words}, {"references", references}, {"limits", limits}, {"ring", ring}, {"chain", chain}};
	for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
		if (argc == 2 && !strcmp(argv[1], all[i].name)) {
			all[i].run();
			return 0;
		}
	return 1;
}
#else
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
#endif
