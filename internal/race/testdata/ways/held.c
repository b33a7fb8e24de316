// One instruction writes to places of its own with different locks held, most of them more than two: often the last one is the same, and how many there are; one is taken three times over.
// Each place is read by code of its own, so that each is a race of its own, and the report says which locks the write was made with. What orders them is a file, which nobody knows of.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WAYS = 9, ROUNDS = 4, MOST = 5 };
static pthread_mutex_t a = PTHREAD_MUTEX_INITIALIZER, b = PTHREAD_MUTEX_INITIALIZER, c = PTHREAD_MUTEX_INITIALIZER, d = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t again = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static const struct { pthread_mutex_t *lock[MOST]; int n; } ways[WAYS] = {{{&a, &b, &c}, 3}, {{&d, &b, &c}, 3}, {{&a, &d, &c}, 3}, {{&b, &a, &c}, 3}, {{&d, &a, &b, &c}, 4}, {{&a, &again, &again, &again, &c}, 5}, {{&a, &b, &d}, 3}, {{&a, &c}, 2}, {{&b, &c}, 2}};
static volatile long places[WAYS][ROUNDS];
static char mark[] = "/tmp/held.XXXXXX";

static void __attribute__((noinline)) touch(volatile long *at) { *at = 1; }

static void __attribute__((noinline)) hold(int way, int round)
{
	for (int i = 0; i < ways[way].n; i++)
		pthread_mutex_lock(ways[way].lock[i]);
	touch(&places[way][round]);
	for (int i = ways[way].n; i-- > 0;)
		pthread_mutex_unlock(ways[way].lock[i]);
}

static void *early(void *arg)
{
	for (int round = 0; round < ROUNDS; round++)
		for (int way = 0; way < WAYS; way++)
			hold(way, round);
	mkdir(mark, 0777);
	return arg;
}

#define READ(way) static long __attribute__((noinline)) read_##way(void) { return places[way][ROUNDS - 1]; }
READ(0) READ(1) READ(2) READ(3) READ(4) READ(5) READ(6) READ(7) READ(8)

static void *late(void *arg)
{
	while (access(mark, F_OK) != 0)
		usleep(1000);
	printf("%ld\n", read_0() + read_1() + read_2() + read_3() + read_4() + read_5() + read_6() + read_7() + read_8());
	return arg;
}

int main(void)
{
	pthread_t t[2];
	if (!mkdtemp(mark) || rmdir(mark))
		return 1;
	pthread_create(&t[0], NULL, early, NULL);
	pthread_create(&t[1], NULL, late, NULL);
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
	return rmdir(mark);
}
