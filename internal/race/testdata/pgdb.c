// The cases of PGDB (Chatterjee et al.): benign, fatal and mixed ones of its section 6.1, and the benchmark cases of its table 3 that are about memory. Its barriers are in barriers.c. Case 4 is in
// unstepped/references.c, case 11 (a mutex destroyed in use) in called/objects.c, case 12 (a descriptor) in called/descriptors.c. Blocks are large and of sizes of their own, so that writing to one that was freed harms nobody.
#include "run.h"
#include <stdatomic.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
#define SIZE 3000

volatile int benign1;
static void *one_variable(void *p) { benign1 = benign1 + 1; /* race-mov one_variable */ use(benign1); /* race-mov one_variable */ return p; }

volatile int benign2x, benign2y;
static void *two_variables1(void *p) { benign2x = benign2y + 1; /* race-mov two_variables */ use(benign2x); return p; }
static void *two_variables2(void *p) { benign2y = benign2x + 1; /* race-mov two_variables */ use(benign2y); return p; }

// One thread leaves out the lock. It has made the other, so that its own section comes first.
volatile int benign3x, benign3y;
static void *locks(void *p)
{
	pthread_mutex_lock(&mutex);
	benign3y = benign3x + 1; // race-mov one_thread_without
	pthread_mutex_unlock(&mutex);
	return p;
}

static void *locks_once(void *p)
{
	pthread_t t;
	pthread_mutex_lock(&mutex);
	benign3x = benign3y + 1;
	pthread_mutex_unlock(&mutex);
	pthread_create(&t, 0, locks, 0);
	benign3x = benign3x + 1; // race-mov one_thread_without
	pthread_join(t, 0);
	return p;
}

volatile int benign4x, benign4y;
static void *in_both1(void *p)
{
	benign4x = benign4y + 1; // race-mov in_both
	benign4y = benign4x; // race-mov in_both
	use(benign4x); // race-mov in_both
	return p;
}

static void *in_both2(void *p)
{
	benign4y = benign4x + 1; // race-mov in_both
	benign4x = benign4y; // race-mov in_both
	use(benign4y); // race-mov in_both
	return p;
}

static int *volatile fatal1;
static void *allocates(void *p)
{
	fatal1 = malloc(SIZE); // race-any fatal1
	fatal1[100] = 1; // race-any fatal1
	return p;
}

static void *frees(void *p)
{
	fatal1[101] = 1; // race-any fatal1
	free(fatal1); // race-any fatal1
	return p;
}

// A count of references without atomics. That the object is not freed twice here is another's doing.
volatile int references = 2;
static void *volatile object;
static atomic_int freed;
static void *drops(void *p)
{
	references = references - 1; // race-mov references
	if (references == 0 && !atomic_exchange(&freed, 1)) // race-mov references
		free(object);
	return p;
}

volatile int fatal3;
static void *adds(void *p) { fatal3 = fatal3 + 4; /* race-mov fatal3 */ return p; }
static void *sets(void *p) { fatal3 = 3; /* race-mov fatal3 */ return p; }

volatile int mixed1x, mixed1y, mixed1z;
static void *branches(void *p)
{
	if (mixed1x < mixed1y) { // race-mov mixed1
		mixed1z = mixed1x + 4; // race-mov mixed1
		mixed1y = mixed1z; // race-mov mixed1
	}
	mixed1z = mixed1z + 1;
	use(mixed1x); // race-mov mixed1
	return p;
}
static void *decides(void *p) { mixed1x = mixed1y - 1; /* race-mov mixed1 */ return p; }

volatile int mixed2x, mixed2y;
static void *rarely(void *p)
{
	if (mixed2y < 0)
		mixed2y = mixed2x + 4;
	mixed2y = mixed2y + 1; // race-mov mixed2
	use(mixed2x); // race-mov mixed2
	return p;
}
static void *looks(void *p) { mixed2x = mixed2y - 1; /* race-mov mixed2 */ return p; }

// Table 3. Case 1: one thread. Case 2: two with a lock. Case 3: of two variables one with it.
volatile int alone, guarded, bare;
static void *works_alone(void *p) { alone = alone + 1; return p; }
static void *guards(void *p)
{
	pthread_mutex_lock(&mutex);
	guarded = guarded + 1;
	pthread_mutex_unlock(&mutex);
	return p;
}
static void *guards_one(void *p)
{
	bare = bare + 1; // race-mov case3
	return guards(p);
}

// Case 5: a flag to wait for.
volatile int stop, result;
static void *stops(void *p)
{
	result = 1; // race-mov case5_result
	stop = 1; // race-mov case5
	return p;
}
static void *waits(void *p)
{
	while (!stop) // race-mov case5
		sched_yield();
	use(result); // race-mov case5_result
	return p;
}

// Case 6: the same rightly. Case 7: with the barrier in the wrong place.
static atomic_int flag6, flag7;
volatile int result6, result7;
static void *stops6(void *p) { result6 = 1; atomic_store(&flag6, 1); return p; }
static void *waits6(void *p)
{
	while (!atomic_load(&flag6))
		sched_yield();
	use(result6);
	return p;
}

static void *stops7(void *p)
{
	atomic_store(&flag7, 1);
	result7 = 1; // race-mov case7
	return p;
}
static void *waits7(void *p)
{
	while (!atomic_load(&flag7))
		sched_yield();
	use(result7); // race-mov case7
	return p;
}

// Case 8: initialising without order.
static int *volatile made;
static void *makes(void *p)
{
	if (!made) // race-mov case8
		made = calloc(1, 16); // race-mov case8
	return p;
}

// Case 9: freed by another.
static int *_Atomic published;
static void *allocates9(void *p)
{
	int *block = malloc(SIZE + 16);
	atomic_store(&published, block);
	block[102] = 1; // race-any case9
	return p;
}
static void *frees9(void *p)
{
	int *block;
	while (!(block = atomic_load(&published)))
		sched_yield();
	free(block); // race-any case9
	return p;
}

// Case 10: the program ends while others still work.
volatile int global10, said;
static void *works(void *p)
{
	global10 = 1; // race-mov case10
	said = 1; // race-mov case10_said
	pause();
	return p;
}
static void at_exit(void) { global10 = 0; /* race-mov case10 */ }

int main(void)
{
	pthread_t t;
	both(one_variable, one_variable);
	both(two_variables1, two_variables2);
	pthread_create(&t, 0, locks_once, 0);
	pthread_join(t, 0);
	both(in_both1, in_both2);
	fatal1 = malloc(SIZE);
	both(allocates, frees);
	object = malloc(16);
	both(drops, drops);
	both(adds, sets);
	both(branches, decides);
	both(rarely, looks);
	pthread_create(&t, 0, works_alone, 0);
	pthread_join(t, 0);
	works_alone(0);
	both(guards, guards);
	both(guards_one, guards_one);
	both(stops, waits);
	both(stops6, waits6);
	both(stops7, waits7);
	both(makes, makes);
	both(allocates9, frees9);
	atexit(at_exit);
	pthread_create(&t, 0, works, 0);
	while (!said) // race-mov case10_said
		sched_yield();
	return 0;
}
