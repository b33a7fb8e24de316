/* places.c: memory that the kernel finds places for, and has back within an epoch. Verdict: clean; prints "done N".
 *
 * Two threads, one after the other, map blocks of many sizes, where the kernel likes, write to them and unmap them; now and then one is made and ends, with a stack that is mapped for it. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long sum;

static void use(unsigned i)
{
	size_t n = (1 + i % 48) << 21; /* to 96 MiB */
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		exit(1);
	for (size_t k = 0; k < n; k += n / 8)
		p[k] = (char)i;
	pthread_mutex_lock(&lock);
	for (size_t k = 0; k < n; k += n / 8)
		sum += p[k];
	pthread_mutex_unlock(&lock);
	munmap(p, n);
}

static void *one(void *arg)
{
	use((unsigned)(long)arg);
	return NULL;
}

static void *many(void *arg)
{
	for (unsigned i = 0; i < 400; i++) {
		use(i);
		if (i % 50 == 0) {
			pthread_t t;
			pthread_create(&t, NULL, one, (void *)(long)i);
			pthread_join(t, NULL);
		}
	}
	return arg;
}

int main(void)
{
	pthread_t t;
	pthread_create(&t, NULL, many, NULL);
	many(NULL);
	pthread_join(t, NULL);
	printf("done %ld\n", sum);
}
