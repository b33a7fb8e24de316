// Two threads that use blocks at the same address one after the other, ordered by nothing but the allocator.
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

static volatile long turn[2];

static void *uses(void *p)
{
	long mine = (long)p;
	for (int i = 0; i < 20; i++) {
		while (turn[!mine] < turn[mine]) // race
			sched_yield();
		long *block = malloc(3000); // more than the thread's own cache takes
		for (int k = 0; k < 20; k++)
			block[k] += k;
		free(block);
		turn[mine]++; // race
	}
	turn[mine] = 1000; // race
	return NULL;
}

int main(void)
{
	pthread_t t[2];
	mallopt(M_ARENA_MAX, 1);
	for (long i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, uses, (void *)i);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	return 0;
}
