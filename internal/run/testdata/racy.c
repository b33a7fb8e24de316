// Crashes that need a race: one thread looks whether there is something, and uses it a little later; another one takes it away for a while. Its argument: which.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define FUNCTION __attribute__((noinline, noclone)) static

enum { ROUNDS = 200 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_barrier_t begin;
static long of[2], there = 42;
static long *volatile shared;
static volatile long sink;
static volatile int over;

static void nap(long us)
{
	struct timespec ts = {0, us * 1000};
	nanosleep(&ts, NULL);
}

// Locks and blocks between what races: there is something to be in order.
FUNCTION void busy(int who, int times)
{
	for (int i = 0; i < times; i++) {
		char *p = malloc((size_t)(16 + i % 100));
		memset(p, i, 16);
		pthread_mutex_lock(&lock);
		of[who] += p[3];
		pthread_mutex_unlock(&lock);
		free(p);
	}
}

FUNCTION void computes(long n)
{
	for (long i = 0; i < n; i++)
		sink += i;
}

FUNCTION void take_away(void) { shared = NULL; }
FUNCTION void bring_back(void) { shared = &there; }
FUNCTION void use(void) { sink = *shared; }

// Both sleep where it matters.
static void *taker(void *arg)
{
	pthread_barrier_wait(&begin);
	for (int i = 0; i < ROUNDS && !over; i++) {
		busy(1, 5);
		nap(1500);
		take_away();
		nap(3000);
		bring_back();
	}
	return arg;
}

static void user(void)
{
	pthread_barrier_wait(&begin);
	for (int i = 0; i < ROUNDS; i++) {
		busy(0, 7);
		if (shared) {
			nap(2000);
			use();
		}
	}
}

// One waits for nothing, and looks again and again.
static void looking_user(void)
{
	pthread_barrier_wait(&begin);
	for (int i = 0; i < 1000 * ROUNDS; i++) {
		busy(0, 7);
		if (!shared)
			use();
	}
}

// One computes, where it sees nothing of the other's; that one sleeps.
static void computing_user(void)
{
	pthread_barrier_wait(&begin);
	for (int i = 0; i < ROUNDS; i++) {
		busy(0, 7);
		if (shared) {
			computes(3000000);
			use();
		}
	}
}

// One uses it again and again with short sleeps between, and the other one computes for about as long before it takes it away: that one's waits say when it woke, and not how much later it wrote.
static void *late_taker(void *arg)
{
	pthread_barrier_wait(&begin);
	nap(5000);
	computes(100000);
	take_away();
	return arg;
}

static void serving_user(void)
{
	pthread_barrier_wait(&begin);
	for (int i = 0; i < 1000; i++) {
		use();
		nap(100);
	}
}

// Nobody sleeps.
static void *quick_taker(void *arg)
{
	pthread_barrier_wait(&begin);
	for (int i = 0; i < 20 * ROUNDS && !over; i++) {
		busy(1, 3);
		take_away();
		computes(20000);
		bring_back();
		computes(100000);
	}
	return arg;
}

static void quick_user(void)
{
	pthread_barrier_wait(&begin);
	for (int i = 0; i < 20 * ROUNDS; i++) {
		busy(0, 2);
		if (shared) {
			computes(40000);
			use();
		}
	}
}

int main(int argc, char **argv)
{
	static const struct { const char *name; void *(*taker)(void *); void (*user)(void); } kinds[] = {{"sleeps", taker, user}, {"looks", taker, looking_user}, {"computes", taker, computing_user}, {"serves", late_taker, serving_user}, {"quick", quick_taker, quick_user}};
	pthread_t t;
	shared = &there;
	pthread_barrier_init(&begin, NULL, 2);
	for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if (argc > 1 && !strcmp(argv[1], kinds[i].name)) {
			pthread_create(&t, NULL, kinds[i].taker, NULL);
			kinds[i].user();
			over = 1;
			pthread_join(t, NULL);
			puts("no crash");
		}
	return 0;
}
