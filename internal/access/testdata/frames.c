// Functions that keep the address of their frame (keeps_…), and such that tell others of it (tells_…). For TestFrames, which never runs them.
#include <alloca.h>

enum { MANY = 32 };
struct pair { long first, second; };
int *volatile place;
struct pair *volatile pair;
volatile int seed;

__attribute__((noinline)) void takes(void *p) { __asm__ volatile("" : : "r"(p) : "memory"); }
__attribute__((noinline)) int counts(int n) { return n + seed; }

int keeps_words(int n)
{
	volatile int own = n, other = seed;
	own += other;
	return own;
}

int keeps_table(int n)
{
	volatile int own[MANY];
	for (int i = 0; i < MANY; i++)
		own[i] = n * i;
	return own[n & (MANY - 1)];
}

int keeps_by_pointer(int n)
{
	volatile int own[MANY];
	for (volatile int *p = own; p != own + MANY; p++)
		*p = n;
	return own[n & (MANY - 1)];
}

int keeps_across_calls(int n)
{
	volatile int own[4] = {n, n, n, n};
	own[n & 3] = counts(n);
	return own[1] + counts(own[0]);
}

int keeps_arguments(int a, int b, int c, int d, int e, int f, int g, int h)
{
	volatile int own = a + b + c + d + e + f;
	return own + g + h;
}

int tells_by_call(void)
{
	volatile int own = seed;
	takes((void *)&own);
	return own;
}

int tells_by_store(void)
{
	volatile int own = seed;
	place = (int *)&own;
	return own + own;
}

// Nobody has it before the frame is gone.
int *keeps_up_to_its_return(void)
{
	volatile int own = seed;
	own += own;
	return (int *)&own;
}

long tells_a_part(void)
{
	volatile struct pair own = {seed, seed};
	takes((void *)&own.second);
	return own.first + own.second;
}

int tells_a_sum(int n)
{
	volatile int own[MANY];
	own[n] = seed;
	place = (int *)own + (n & (MANY - 1));
	return own[n];
}

int tells_late(int n)
{
	volatile int own[MANY];
	volatile int *p = own;
	for (int i = 0; i < MANY; i++)
		own[i] = n;
	if (counts(n))
		p += n;
	counts(n);
	place = (int *)p;
	return own[n];
}

int tells_in_a_loop(int n)
{
	volatile int own[MANY];
	volatile int *p = 0;
	for (int i = 0; i < n; i++) {
		own[i & (MANY - 1)] = i;
		if (p)
			place = (int *)p;
		p = own + (i & (MANY - 1));
	}
	return own[0];
}

int tells_what_it_made(int n)
{
	volatile int own = n;
	int *made = alloca((unsigned)n * sizeof *made);
	takes(made);
	return own;
}

int tells_as_a_number(int n)
{
	volatile int own = n;
	seed = (int)((unsigned long)&own >> 4);
	return own;
}

int main(void) { return 0; }
