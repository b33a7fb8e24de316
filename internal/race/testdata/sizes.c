// Accesses of all sizes: bytes beside each other, wide ones, strings, unaligned ones.
#include "run.h"
#include <emmintrin.h>

char bytes[64] __attribute__((aligned(64)));
static char big[20000];
short halves[8] __attribute__((aligned(16)));
__m128i vectors[4];

static void *even(void *p) { for (int i = 0; i < 8; i += 2) bytes[i]++; return p; }
static void *odd(void *p) { for (int i = 1; i < 8; i += 2) bytes[i]++; return p; }

static void *sixteen(void *p) { _mm_store_si128(&vectors[0], _mm_set1_epi8(1)); /* race vector */ return p; }
static void *one_of_them(void *p) { ((char *)vectors)[15] = 3; /* race vector */ return p; }
static void *next_to_them(void *p) { ((char *)vectors)[16] = 3; return p; }

static void *fills(void *p)
{
	void *to = big;
	size_t n = sizeof big;
	__asm__ volatile("rep stosb" : "+D"(to), "+c"(n) : "a"(7) : "memory"); // race string
	return p;
}
static void *last(void *p) { big[sizeof big - 1] = 1; /* race string */ return p; }

static void *crosses(void *p) { *(volatile int *)(bytes + 30) = 1; /* race unaligned */ return p; }
static void *is_crossed(void *p) { *(volatile char *)(bytes + 33) = 1; /* race unaligned */ return p; }

static void *half(void *p) { *(volatile short *)&halves[0] = 1; return p; }
static void *other_half(void *p) { *(volatile short *)&halves[1] = 1; return p; }

int main(void)
{
	both(even, odd);
	both(sixteen, one_of_them);
	both(sixteen, next_to_them);
	both(fills, last);
	both(crosses, is_crossed);
	both(half, other_half);
	return 0;
}
