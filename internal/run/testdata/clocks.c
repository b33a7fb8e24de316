/* Threads whose memory depends on rdtsc and rdtscp: counters in a slot that the clock chooses, its last values, its differences. Keeps flags and registers over the instruction, and jumps right behind it. Argument: how many threads. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <x86intrin.h>

enum { MOST = 16, ROUNDS = 40, TIMES = 2000, SLOTS = 64, FLAGS = 0x8d5 };

static struct slots { uint64_t count[SLOTS], last, sum, processors; uint32_t bad; } of[MOST];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t together;

/* Carry, parity, zero, sign, overflow are what they were, and so is every register that the instruction does not write; the red zone, too. */
static uint64_t in_asm(uint64_t flags, uint32_t *bad)
{
	uint64_t hi, lo, got;
	__asm__ volatile("movq %[flags], -8(%%rsp)\n	subq $128, %%rsp\n	pushq %[flags]\n	popfq\n	leaq 128(%%rsp), %%rsp\n"
		"	movl $11, %%ecx\n	movl $12, %%esi\n	movl $13, %%edi\n	movl $14, %%r8d\n	movl $15, %%r9d\n	movl $16, %%r10d\n	movl $17, %%r11d\n"
		"	jmp 1f\n	.p2align 4\n1:	rdtsc\n2:	leaq -256(%%rsp), %%rsp\n	pushfq\n	popq %[got]\n	leaq 256(%%rsp), %%rsp\n"
		"	cmpl $11, %%ecx\n	jne 3f\n	cmpl $12, %%esi\n	jne 3f\n	cmpl $13, %%edi\n	jne 3f\n	cmpl $14, %%r8d\n	jne 3f\n	cmpl $15, %%r9d\n	jne 3f\n	cmpl $16, %%r10d\n	jne 3f\n	cmpl $17, %%r11d\n	jne 3f\n"
		"	cmpq %[flags], -8(%%rsp)\n	je 4f\n3:	movl $1, (%[bad])\n4:\n"
		: "=a"(lo), "=d"(hi), [got] "=&r"(got) : [flags] "r"(flags), [bad] "r"(bad) : "rcx", "rsi", "rdi", "r8", "r9", "r10", "r11", "cc", "memory");
	if ((got ^ flags) & FLAGS)
		*bad = 1;
	return hi << 32 | lo;
}

/* As short as it can be, with a branch to what comes right behind it. */
__attribute__((noinline)) static uint64_t since(uint64_t than)
{
	uint64_t hi, lo;
	__asm__ volatile("1:	rdtsc\n2:	shlq $32, %%rdx\n	orq %%rdx, %%rax\n	cmpq %[than], %%rax\n	jb 1b\n	xorl %%edx, %%edx\n	testl %%ecx, %%ecx\n	jz 3f\n	xorl %%ecx, %%ecx\n	jmp 2b\n3:\n" : "=a"(lo), "=d"(hi) : [than] "r"(than), "c"(than & 1) : "cc");
	return hi + lo;
}

static void *work(void *arg)
{
	struct slots *s = arg;
	uint64_t seed = 0x9e3779b97f4a7c15u;
	for (int r = 0; r < ROUNDS; r++) {
		for (int i = 0; i < TIMES; i++) {
			seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
			uint32_t processor;
			uint64_t a = __rdtsc(), b = __rdtscp(&processor), c = in_asm((seed & FLAGS) | 0x202, &s->bad), d = since(a);
			s->count[a / 8 % SLOTS]++;
			s->sum = s->sum * 31 + (b - a) + (d - c);
			s->last = d;
			s->processors |= 1ull << (processor & 63);
			if (d < a || processor >> 12 > 64)
				s->bad = 1;
			if (i % 500 == 0) {
				pthread_mutex_lock(&lock);
				together = together * 31 + s->sum;
				pthread_mutex_unlock(&lock);
			}
		}
		/* The vdso asks the kernel for this one: a call within a call. */
		struct timespec ts;
		clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
		s->sum += (uint64_t)ts.tv_nsec;
		ts = (struct timespec){0, 2000000};
		nanosleep(&ts, NULL);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	int threads = argc > 1 ? atoi(argv[1]) : 1;
	pthread_t t[MOST];
	uint64_t all = 0, begun = __rdtsc();
	struct timespec from, to;
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (int i = 1; i < threads; i++)
		pthread_create(&t[i], NULL, work, &of[i]);
	work(&of[0]);
	for (int i = 1; i < threads; i++)
		pthread_join(t[i], NULL);
	clock_gettime(CLOCK_MONOTONIC, &to);
	double ns = (double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec), each = (double)(__rdtsc() - begun) / ns;
	uint32_t bad = 0;
	for (int i = 0; i < threads; i++) {
		bad |= of[i].bad;
		for (int k = 0; k < SLOTS; k++)
			all += of[i].count[k];
	}
	printf("%lu %u %s\n", (unsigned long)all, bad, each > 0.5 && each < 10 ? "a clock" : "no clock");
	return 0;
}
