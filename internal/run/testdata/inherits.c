// What threads find in vector registers when they begin, which is what their makers had there, is written down. Verdict: no race, no difference.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

enum { THREADS = 300 };
static uint64_t seen[THREADS][2];

static void *look(void *p)
{
	__asm__ volatile("movups %%xmm15, %0" : "=m"(*(uint64_t(*)[2])p));
	return NULL;
}

int main(void)
{
	uint64_t x = 1;
	for (int i = 0; i < THREADS; i++) {
		for (int k = 0; k < 100000; k++)
			x = x * 6364136223846793005u + 1442695040888963407u;
		pthread_t t;
		x |= 1;
		__asm__ volatile("movq %0, %%xmm15" ::"r"(x) : "xmm15");
		if (pthread_create(&t, NULL, look, seen[i]) || pthread_join(t, NULL))
			return 1;
	}
	printf("%d threads\n", THREADS);
	return 0;
}
