// Prints nanoseconds per lock+unlock pair at the bottom of a stack of N frames; with a second thread alive, as in any program of interest.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1e9 + t.tv_nsec;
}
static void *idle(void *p)
{
	pause();
	return p;
}
static int n;
__attribute__((noinline)) static double loop(void)
{
	double best = 1e9;
	for (int k = 0; k < 20; k++) {
		double t = now();
		for (int i = 0; i < n; i++) {
			pthread_mutex_lock(&m);
			pthread_mutex_unlock(&m);
		}
		t = (now() - t) / n;
		best = t < best ? t : best;
	}
	return best;
}
__attribute__((noinline)) static double deep(int depth)
{
	double r = depth ? deep(depth - 1) : loop();
	__asm__ volatile("" ::: "memory");
	return r;
}
int main(int argc, char **argv)
{
	pthread_t t;
	n = argc > 2 ? atoi(argv[2]) : 20000;
	pthread_create(&t, NULL, idle, NULL);
	printf("%.1f\n", deep(argc > 1 ? atoi(argv[1]) : 20));
	return 0;
}
