// The cases of PGDB whose threads are put in order unseen, beside those of pgdb.c: the third mixed one of its section 6.1, and case 4 of its table 3. Blocks are large and of sizes of their own, so that writing
// to one that was freed harms nobody.
#include "../run.h"
#include <stdatomic.h>

#define SIZE 3000

// In the order in which PGDB does not see it: the block is another one by the time it is freed.
static int *volatile mixed3;
static void *writes_then_frees(void *p)
{
	mixed3[101] = 1; // race-any mixed3
	unseen_wait();
	free(mixed3); // race-any mixed3
	return p;
}
static void *replaces(void *p)
{
	mixed3 = malloc(SIZE + 32); // race-any mixed3
	mixed3[100] = 1; // race-any mixed3
	unseen_done();
	return p;
}

// Case 4: a count of references without atomics, and who comes last frees what the other still writes.
volatile int count4 = 2;
static int *volatile object4;
static void *drops_and_writes(void *p)
{
	int *mine = object4;
	count4 = count4 - 1; // race-mov case4_count
	mine[103] = 1; // race-any case4_block
	unseen_done();
	return p;
}
static void *drops_and_frees(void *p)
{
	unseen_wait();
	int *mine = object4;
	count4 = count4 - 1; // race-mov case4_count
	if (count4 == 0) // race-mov case4_count
		free(mine); // race-any case4_block
	return p;
}

// The same rightly.
static atomic_int count4_right = 2;
static void *drops_right(void *p)
{
	int *mine = object4;
	use(mine[103]);
	if (atomic_fetch_sub(&count4_right, 1) == 1)
		free(mine);
	return p;
}

int main(void)
{
	mixed3 = malloc(SIZE + 48);
	unseen(replaces, writes_then_frees);
	object4 = calloc(1, SIZE + 64);
	unseen(drops_and_writes, drops_and_frees);
	object4 = calloc(1, SIZE + 64);
	both(drops_right, drops_right);
	return 0;
}
