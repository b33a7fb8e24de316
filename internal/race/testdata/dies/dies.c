// What leads to a crash is seen just before it, in the same function.
#include "../run.h"
#include <signal.h>

static long *block;
long left;
static volatile int zero;
static char how;

static void *frees(void *p)
{
	left = 1; // race-mov left
	free(block); // uaf followed
	unseen_done();
	return p;
}

static void *follows(void *p)
{
	unseen_wait();
	left = 2; // race-mov left
	long there = *(volatile long *)block; // uaf followed
	switch (how) {
	case 's':
		*(volatile long *)(there & 8) = 1;
		break;
	case 'i':
		__builtin_trap();
	case 'f':
		use(7 / zero);
		break;
	case 'a':
		abort();
	}
	return p;
}

int main(int argc, char **argv)
{
	how = argc > 1 ? argv[1][0] : 0;
	struct sigaction now;
	sigaction(SIGSEGV, 0, &now);
	printf("%d\n", now.sa_handler == SIG_DFL);
	fflush(stdout);
	block = malloc(8);
	block[0] = 0;
	unseen(frees, follows);
	return 0;
}
