// One thread takes a thousand mutexes of four kinds in turn, with tries of those that it has, while a timer's handler takes one of its own; then it makes threads that want two of them while it has these, and joins them; and so on. Prints sums that are
// the same in each run. signals: with the timer.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>

enum { MUTEXES = 1000, ROUNDS = 8, TIMES = 3000000, LATER = 1000 /* glibc does not say again that there is one thread */, THREADS = 2, ADDS = 200 };
static pthread_mutex_t mutex[MUTEXES], of_handler = PTHREAD_MUTEX_INITIALIZER;
static uint64_t taken, refused, mixed, shared_sum;
static volatile uint64_t heard;

static void hear(int sig)
{
	pthread_mutex_lock(&of_handler);
	heard = heard * 31 + (uint64_t)sig + taken;
	pthread_mutex_unlock(&of_handler);
}

static void *add(void *arg)
{
	for (int i = 0; i < ADDS; i++) {
		pthread_mutex_lock(&mutex[0]);
		pthread_mutex_lock(&mutex[1]);
		shared_sum += (uintptr_t)arg;
		pthread_mutex_unlock(&mutex[1]);
		pthread_mutex_unlock(&mutex[0]);
	}
	return NULL;
}

static void alone(uint64_t *seed, int times)
{
	for (int i = 0; i < times; i++) {
		*seed = *seed * 6364136223846793005u + 1442695040888963407u;
		unsigned k = (unsigned)(*seed >> 40) % MUTEXES;
		pthread_mutex_lock(&mutex[k]);
		mixed = mixed * 31 + k;
		int r = i % 16 ? EBUSY : pthread_mutex_trylock(&mutex[k]);
		if (r == 0)
			pthread_mutex_unlock(&mutex[k]);
		else
			refused += (uint64_t)r;
		if (i % 7 == 0 && pthread_mutex_trylock(&mutex[(k + 1) % MUTEXES]) == 0)
			pthread_mutex_unlock(&mutex[(k + 1) % MUTEXES]);
		pthread_mutex_unlock(&mutex[k]);
		taken++;
	}
}

int main(int argc, char **argv)
{
	static const int kinds[] = {PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ADAPTIVE_NP, PTHREAD_MUTEX_ERRORCHECK};
	for (int i = 0; i < MUTEXES; i++) {
		pthread_mutexattr_t a;
		pthread_mutexattr_init(&a);
		pthread_mutexattr_settype(&a, kinds[i % 16 ? i % 3 : 3]);
		pthread_mutex_init(&mutex[i], &a);
	}
	if (argc > 1 && strcmp(argv[1], "signals") == 0) {
		struct sigaction act = {.sa_handler = hear, .sa_flags = SA_RESTART};
		sigaction(SIGALRM, &act, NULL);
		setitimer(ITIMER_REAL, &(struct itimerval){{0, 3000}, {0, 3000}}, NULL);
	}
	uint64_t seed = 1;
	for (int r = 0; r < ROUNDS; r++) {
		pthread_t id[THREADS];
		alone(&seed, r ? LATER : TIMES);
		pthread_mutex_lock(&mutex[0]);
		pthread_mutex_lock(&mutex[1]);
		pthread_mutex_lock(&mutex[1]);
		for (int i = 0; i < THREADS; i++)
			pthread_create(&id[i], NULL, add, (void *)(uintptr_t)(i + 1));
		nanosleep(&(struct timespec){0, 3000000}, NULL);
		shared_sum++;
		pthread_mutex_unlock(&mutex[1]);
		pthread_mutex_unlock(&mutex[1]);
		pthread_mutex_unlock(&mutex[0]);
		for (int i = 0; i < THREADS; i++)
			pthread_join(id[i], NULL);
	}
	printf("%lu %lu %lx %lu\n", taken, refused, mixed, shared_sum);
	return 0;
}
