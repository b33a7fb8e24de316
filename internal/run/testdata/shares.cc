// Threads that take their work by a count. shares KIND: "loop" adds and looks; "looks" looks before it adds; "omp" leaves it to OpenMP's dynamic schedule.
#include <atomic>
#include <cstdio>
#include <cstring>
#include <omp.h>
#include <pthread.h>

enum { ITEMS = 60000, PART = 8, THREADS = 4, ROUNDS = 8 };
static std::atomic<int> next;
static long results[ITEMS], by[THREADS][8]; // by: what each has done

static void part(int from, int thread)
{
	for (int i = from; i < from + PART && i < ITEMS; i++) {
		long x = i;
		for (int n = 0; n < 60; n++)
			x = x * 1103515245 + 12345;
		results[i] = x;
		by[thread][i & 7] += x & 0xff;
	}
}

static void *loop(void *a)
{
	for (int i; (i = next.fetch_add(PART)) < ITEMS;)
		part(i, (int)(long)a);
	return nullptr;
}

static void *looks(void *a)
{
	while (next.load() < ITEMS)
		part(next.fetch_add(PART), (int)(long)a);
	return nullptr;
}

int main(int, char **v)
{
	for (int round = 0; round < ROUNDS; round++) {
		next = 0;
		if (!strcmp(v[1], "omp")) {
#pragma omp parallel for schedule(dynamic, 1) num_threads(THREADS)
			for (int i = 0; i < ITEMS / PART; i++)
				part(i * PART, omp_get_thread_num());
			continue;
		}
		pthread_t t[THREADS];
		for (long i = 0; i < THREADS; i++)
			pthread_create(&t[i], nullptr, strcmp(v[1], "loop") ? looks : loop, (void *)i);
		for (auto &x : t)
			pthread_join(x, nullptr);
	}
	long sum = 0, done = 0;
	for (auto &row : by)
		for (long x : row)
			done += x;
	for (long x : results)
		sum += x & 0xff;
	return printf("%ld %d\n", sum, done == sum * ROUNDS) < 0;
}
