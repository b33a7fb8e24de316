// Blocks of several pages, of which little is accessed: freed bytes are known by whole pages there, and what was accessed by groups of cells. Used again in part, wholly, and raced for in the middle.
#include "../run.h"

enum { SIZE = 40000, PART = 3000 };

static char *volatile again, *volatile part, *volatile middle, *volatile late;

// In the middle of a block that is free; and, rightly, in another that is made of its first part.
static void reads_free(void)
{
	again = malloc(SIZE);
	again[100] = 1;
	again[20000] = 2;
	free(again); // uaf free
	use(again[30000]); // uaf free
	part = malloc(PART);
	part[PART - 1] = 3;
	use(part[PART - 1]);
	free(part);
}

// All of it is handed out again.
static void rightly(void)
{
	for (int i = 0; i < 100; i++) {
		char *volatile p = malloc(SIZE);
		p[0] = p[20000] = p[SIZE - 1] = (char)i;
		free(p);
	}
}

// One writes in the middle, where nobody did before, and another frees.
static void *writes_middle(void *p)
{
	middle[20001] = 1; // race middle
	unseen_done();
	return p;
}
static void *frees_middle(void *p)
{
	unseen_wait();
	free(middle); // race middle
	return p;
}

// One frees, and another writes in the middle.
static void *frees_late(void *p)
{
	free(late); // uaf late
	unseen_done();
	return p;
}
static void *writes_late(void *p)
{
	unseen_wait();
	late[20001] = 1; // uaf late
	return p;
}

int main(void)
{
	rightly();
	reads_free();
	rightly();
	middle = malloc(SIZE);
	unseen(writes_middle, frees_middle);
	late = malloc(SIZE);
	char *volatile behind = malloc(64); // so that nothing is given back
	unseen(frees_late, writes_late);
	free(behind);
	return 0;
}
