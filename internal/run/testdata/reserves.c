/* reserves: uses up its stack at the start, up to some bytes from its end, so that it has the memory later, as interpreters do (Ruby, whose margin is 4 KiB); then two threads race. Only what the first thread
 * does at the end of its stack is not looked at. Prints "reserved" and the sum. */
#include <alloca.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>

static int shared;

static __attribute__((noinline)) int reserve(uintptr_t end, size_t left)
{
	volatile char here[16];
	volatile char *low = alloca((uintptr_t)here - end - left);
	int sum = 0;
	for (int i = 0; i < 64; i++) {
		low[i] = i;
		sum += low[i];
	}
	return sum;
}

static void *adds(void *arg)
{
	shared += *(int *)arg;
	return NULL;
}

int main(int argc, char **argv)
{
	(void)argc;
	struct rlimit r;
	if (getrlimit(RLIMIT_STACK, &r) || r.rlim_cur == RLIM_INFINITY)
		return 77;
	const char *last = (const char *)getauxval(AT_EXECFN);
	uintptr_t top = ((uintptr_t)last + strlen(last) + 8 + 4096) & -4096ul;
	int sum = 0;
	for (size_t left = 16384; left >= (size_t)atoi(argv[1]); left -= 128)
		sum += reserve(top - r.rlim_cur, left);
	printf("reserved %d\n", sum);
	pthread_t t[2];
	int v[2] = {1, 2};
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, adds, &v[i]);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
	printf("%d\n", shared);
	return 0;
}
