// Barriers: the scenarios of PGDB's table 2 (its thread functions by case), and that a later phase is another. How the accesses meet decides which of
// three threads' pairs is the first race of a variable: lines with one name are any two of that race.
#include "run.h"

static pthread_barrier_t bar;
int x1, x2, x3, x4, x5, x6, x7;
static int phase[2];

static void all(void *(*one)(void *), void *(*two)(void *), void *(*three)(void *))
{
	pthread_t t;
	if (three)
		pthread_create(&t, 0, three, 0);
	both(one, two);
	if (three)
		pthread_join(t, 0);
}

static void *one1(void *p) { x1 = 1; /* race-mov case1 */ pthread_barrier_wait(&bar); return p; }
static void *two1(void *p) { x1 = 2; /* race-mov case1 */ pthread_barrier_wait(&bar); return p; }

static void *one2(void *p) { x2 = 1; /* race-mov case2 */ pthread_barrier_wait(&bar); return p; }
static void *two2(void *p) { x2 = 3; /* race-mov case2 */ pthread_barrier_wait(&bar); return p; }
static void *three2(void *p) { x2 = 2; /* race-mov case2 */ return p; }

static void *one3(void *p) { x3 = 1; pthread_barrier_wait(&bar); return p; }
static void *two3(void *p) { pthread_barrier_wait(&bar); use(x3); return p; }

static void *one4(void *p) { pthread_barrier_wait(&bar); x4 = 1; return p; }
static void *two4(void *p) { use(x4); pthread_barrier_wait(&bar); return p; }

static void *one5(void *p) { x5 = 1; /* race-mov case5 */ pthread_barrier_wait(&bar); return p; }
static void *two5(void *p) { pthread_barrier_wait(&bar); x5 = 3; /* race-mov case5 */ return p; }
static void *three5(void *p) { x5 = 2; /* race-mov case5 */ return p; }

static void *one6(void *p) { x6 = 1; /* race-mov case6 */ pthread_barrier_wait(&bar); return p; }
static void *two6(void *p) { use(x6); /* race-mov case6 */ pthread_barrier_wait(&bar); return p; }

static void *one7(void *p) { pthread_barrier_wait(&bar); x7 = 1; /* race-mov case7 */ return p; }
static void *two7(void *p) { pthread_barrier_wait(&bar); x7 = 3; /* race-mov case7 */ return p; }
static void *three7(void *p) { x7 = 2; /* race-mov case7 */ return p; }

static void *turns(void *p)
{
	int me = p != 0;
	for (int n = 0; n < 4; n++) {
		phase[me]++;
		pthread_barrier_wait(&bar);
		use(phase[!me]);
		pthread_barrier_wait(&bar);
	}
	return p;
}

static void *turns_too(void *p) { turns(&bar); return p; }

int main(void)
{
	pthread_barrier_init(&bar, 0, 2);
	all(one1, two1, 0);
	all(one2, two2, three2);
	all(one3, two3, 0);
	all(one4, two4, 0);
	all(one5, two5, three5);
	all(one6, two6, 0);
	all(one7, two7, three7);
	all(turns, turns_too, 0);
	pthread_barrier_destroy(&bar);
	return 0;
}
