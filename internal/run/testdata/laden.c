// Many blocks, at all of which guard looks when it crashes: that takes longer than an end of an epoch.
#include <stdlib.h>
#include <time.h>

static long *volatile none;
static long *volatile block[400000];

static __attribute__((noinline)) void fall(void) { *none = 1; }

int main(void)
{
	for (unsigned i = 0; i < sizeof block / sizeof *block; i++)
		block[i] = malloc(16);
	for (int i = 0; i < 10; i++)
		nanosleep(&(struct timespec){0, 10000000}, NULL);
	fall();
}
