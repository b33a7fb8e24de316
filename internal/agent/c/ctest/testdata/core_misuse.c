// Wrong joins and detaches whose results are defined enough to be run, one by one.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_barrier_t b;
static void *run(void *p)
{
	return p;
}
static void *held(void *p)
{
	pthread_barrier_wait(&b);
	return p;
}
int main(int argc, char **argv)
{
	pthread_t t, keep;
	const char *what = argv[1];
	if (argc < 2)
		return 2;
	pthread_barrier_init(&b, NULL, 2);
	if (!strcmp(what, "double-join")) {
		// A thread that stays keeps the process threaded; the joined one's memory stays in glibc's cache.
		pthread_create(&keep, NULL, held, NULL);
		pthread_create(&t, NULL, run, NULL);
		pthread_join(t, NULL);
		pthread_join(t, NULL);
		pthread_barrier_wait(&b);
		pthread_join(keep, NULL);
	} else if (!strcmp(what, "join-detached")) {
		pthread_create(&t, NULL, held, NULL);
		pthread_detach(t);
		printf("%d\n", pthread_join(t, NULL));
		pthread_barrier_wait(&b);
	} else if (!strcmp(what, "double-detach")) {
		pthread_create(&t, NULL, held, NULL);
		pthread_detach(t);
		printf("%d\n", pthread_detach(t));
		pthread_barrier_wait(&b);
	} else if (!strcmp(what, "join-self")) {
		printf("%d\n", pthread_join(pthread_self(), NULL));
	} else if (!strcmp(what, "reuse")) {
		// Right: glibc gives the same pthread_t again and again.
		pthread_t last = 0;
		int same = 0;
		for (int i = 0; i < 200; i++) {
			pthread_create(&t, NULL, run, NULL);
			same += t == last;
			last = t;
			if (i % 2)
				pthread_join(t, NULL);
			else {
				pthread_detach(t);
				usleep(100);
			}
		}
		printf("reused %d\n", same > 0);
	}
	return 0;
}
