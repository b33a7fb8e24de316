/* One thread looks at another's variable without a lock, half a millisecond after it has been told of a round, and the rounds are three apart: that it comes in time is in no log, and what it saw stays in memory. Argument: by what rounds are apart:
 * sleep: nanosleep; timed: pthread_cond_timedwait. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { ROUNDS = 120, APART_NS = 3000000, LATE_NS = 500000 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, telling = PTHREAD_MUTEX_INITIALIZER /* one for both would order all of it */;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER, begins = PTHREAD_COND_INITIALIZER, told = PTHREAD_COND_INITIALIZER;
static int begun, done;
static volatile uint64_t thing, seen;

static int64_t now_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

static void *changes(void *arg)
{
	for (int r = 1; r <= ROUNDS; r++) {
		pthread_mutex_lock(&lock);
		while (begun < r)
			pthread_cond_wait(&begins, &lock);
		pthread_mutex_unlock(&lock);
		thing = thing * 31 + (uint64_t)r;
		pthread_mutex_lock(&telling);
		done = r;
		pthread_cond_signal(&told);
		pthread_mutex_unlock(&telling);
	}
	return arg;
}

static void *looks(void *arg)
{
	int64_t each = *(int64_t *)arg;
	for (int r = 1; r <= ROUNDS; r++) {
		pthread_mutex_lock(&telling);
		while (done < r)
			pthread_cond_wait(&told, &telling);
		pthread_mutex_unlock(&telling);
		for (volatile int64_t i = 0; i < each; i++)
			;
		seen = seen * 31 + thing;
	}
	return NULL;
}

int main(int argc, char **argv)
{
	int timed = argc > 1 && !strcmp(argv[1], "timed");
	enum { SOME = 1000000 };
	int64_t from = now_ns();
	for (volatile int64_t i = 0; i < SOME; i++)
		;
	int64_t took = now_ns() - from, each = (int64_t)SOME * LATE_NS / (took ? took : 1);
	pthread_t a, b;
	pthread_create(&a, NULL, changes, NULL);
	pthread_create(&b, NULL, looks, &each);
	for (int r = 1; r <= ROUNDS; r++) {
		if (timed) {
			struct timespec ts;
			pthread_mutex_lock(&lock);
			clock_gettime(CLOCK_REALTIME, &ts);
			ts.tv_nsec += APART_NS;
			if (ts.tv_nsec >= 1000000000)
				ts.tv_nsec -= 1000000000, ts.tv_sec++;
			while (pthread_cond_timedwait(&never, &lock, &ts) == 0)
				;
			pthread_mutex_unlock(&lock);
		} else {
			struct timespec ts = {0, APART_NS};
			nanosleep(&ts, NULL);
		}
		pthread_mutex_lock(&lock);
		begun = r;
		pthread_cond_signal(&begins);
		pthread_mutex_unlock(&lock);
	}
	pthread_join(a, NULL);
	pthread_join(b, NULL);
	printf("%d\n", done);
	return 0;
}
