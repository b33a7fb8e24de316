// A program that sets the base of GS by an instruction, where the kernel lets it (segments.c).
#include "../run.h"
#include <stdint.h>
#include <sys/auxv.h>

#define MUST(x) do { if (!(x)) abort(); } while (0)
enum { FSGSBASE = 2 };
struct block { long at_zero, counted; };
#define COUNT() __asm__ volatile("incq %%gs:8" : : : "memory")
static uintptr_t base(void)
{
	uintptr_t now;
	__asm__ volatile("rdgsbase %0" : "=r"(now));
	return now;
}

long beside;
static void *has_its_own(void *p)
{
	struct block own = {0};
	if (getauxval(AT_HWCAP2) & FSGSBASE) {
		MUST(base() == 0);
		__asm__ volatile("wrgsbase %0" : : "r"(&own));
		for (int i = 0; i < 100; i++) {
			COUNT();
			free(malloc(10));
		}
		MUST(own.counted == 100 && base() == (uintptr_t)&own);
		__asm__ volatile("wrgsbase %0" : : "r"(0l));
	}
	beside++; // race beside
	return p;
}

int main(void)
{
	both(has_its_own, has_its_own);
	puts("done");
	return 0;
}
