// Large blocks of malloc's that threads share under a lock, hand on, or have for themselves, more threads than there are keys; and results that every instruction must leave as it does natively.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 1 << 18, THREADS = 24, ROUNDS = 50 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *shared;
static long sum;

typedef double v4 __attribute__((vector_size(32), aligned(1)));

__attribute__((noinline)) static long kinds(char *p, long n)
{
	long r = 0;
	*(volatile int8_t *)(p + 1) += 1;
	*(volatile int16_t *)(p + 5) += 2;
	*(volatile int32_t *)(p + 4094) += 3; // two pages
	*(volatile int64_t *)(p + 16) += n;
	*(volatile double *)(p + 32) += 0.5;
	*(volatile float *)(p + 40) += 0.25f;
	v4 *v = (v4 *)(p + 64);
	*v += 1.0;
	__asm__ volatile("fldl 128(%0)\n\tfld1\n\tfaddp\n\tfstpl 128(%0)" : : "r"(p) : "memory");
	__asm__ volatile("push 16(%0)\n\tpop 136(%0)" : : "r"(p) : "memory");
	__asm__ volatile("lock addq %1, 144(%0)\n\txchg %1, 152(%0)" : : "r"(p), "r"(n) : "memory", "cc");
	__asm__ volatile("btsq %1, 160(%0)" : : "r"(p), "r"(n & 127) : "memory", "cc");
	void *from = p + 16, *to = p + 5000;
	long count = 200;
	__asm__ volatile("rep movsb" : "+S"(from), "+D"(to), "+c"(count) : : "memory");
	to = p + 6000;
	count = 100;
	__asm__ volatile("rep stosl" : "+D"(to), "+c"(count) : "a"((int)n) : "memory");
	from = p + 6000;
	count = 100;
	__asm__ volatile("repe scasl" : "+D"(from), "+c"(count) : "a"((int)n) : "memory", "cc");
	r += count;
	memmove(p + 7000, p + 5000, 500);
	memset(p + 8000, (int)n, 300);
	r += memcmp(p + 5000, p + 7000, 200) == 0;
	r += (long)strlen(strcpy(p + 9000, "some text"));
	for (int i = 0; i < 200; i++)
		r += p[5000 + i];
	return r;
}

static void *worker(void *arg)
{
	long n = (long)(intptr_t)arg;
	long *own = calloc(1, BYTES);
	for (int i = 0; i < ROUNDS; i++) {
		for (int k = 0; k < 100; k++)
			own[k * 64] += n;
		pthread_mutex_lock(&lock);
		sum += kinds(shared, 3);
		pthread_mutex_unlock(&lock);
	}
	int fd[2];
	if (pipe(fd) == 0) {
		own[1] = n;
		if (write(fd[1], own, 16) != 16 || read(fd[0], own + 2, 16) != 16)
			abort();
		close(fd[0]);
		close(fd[1]);
	}
	own[5] = own[3] + own[64];
	return own;
}

int main(void)
{
	pthread_t t[THREADS];
	long total = 0;
	shared = malloc(BYTES);
	memset(shared, 0, BYTES);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, worker, (void *)(intptr_t)(i + 1));
	for (int i = 0; i < THREADS; i++) {
		void *own;
		pthread_join(t[i], &own);
		total += ((long *)own)[5];
		own = realloc(own, 3 * BYTES);
		total += ((long *)own)[5];
		free(own);
	}
	unsigned hash = 0;
	for (int i = 0; i < BYTES; i++)
		hash = hash * 31 + (unsigned char)shared[i];
	printf("%ld %ld %x\n", total, sum, hash);
	return 0;
}
