// Accesses that two threads make again and again, by the same instructions from the same stacks, in an order that barriers make; but the last time, when nothing orders them. So what races is told by the agent's shortest
// way (tellnew.c), whose conditions this is about: what is another's and known, bytes, sites, stacks, locks, freed blocks, several cells.
#include "../run.h"
#include <emmintrin.h>
#include <stdint.h>

enum { ROUNDS = 200 };
static pthread_barrier_t turn;
static void (*one)(int last), (*two)(int last);

// The functions' calls are the same in each round, so that their stacks are.
static void *ones(void *p)
{
	for (int i = 1; i <= ROUNDS; i++) {
		one(i == ROUNDS);
		for (int k = 0; k < 2 && i < ROUNDS; k++)
			pthread_barrier_wait(&turn);
	}
	return p;
}

static void *twos(void *p)
{
	for (int i = 1; i <= ROUNDS; i++) {
		if (i < ROUNDS)
			pthread_barrier_wait(&turn);
		two(i == ROUNDS);
		if (i < ROUNDS)
			pthread_barrier_wait(&turn);
	}
	return p;
}

static void again(void (*a)(int), void (*b)(int))
{
	one = a;
	two = b;
	pthread_barrier_init(&turn, 0, 2);
	both(ones, twos);
	pthread_barrier_destroy(&turn);
}

#define SLOW __attribute__((noinline)) static void
static union { volatile uint64_t all; volatile uint32_t half[2]; volatile uint16_t two[4]; volatile uint8_t byte[64]; } m[64] __attribute__((aligned(64)));
#define AT(place, type, offset) (*(volatile type *)(m[place].byte + (offset)))
#define INC(x) (++*(uint32_t *)&(x)) /* one instruction */

SLOW writes(int last) { m[0].all = (uint64_t)last; } // race-any write_read
SLOW reads(int last) { use(m[0].all); (void)last; } // race-any write_read
SLOW reads_first(int last) { use(m[1].all); (void)last; } // race-any read_write
SLOW writes_then(int last) { m[1].all = (uint64_t)last; } // race-any read_write
SLOW writes_too(int last) { m[2].all = (uint64_t)last; } // race-any write_write
SLOW writes_as_well(int last) { m[2].all = (uint64_t)last; } // race-any write_write
SLOW counts(int last) { INC(m[3].half[1]); (void)last; } // race-any count_read
SLOW reads_count(int last) { use(m[3].half[1]); (void)last; } // race-any count_read
SLOW reads_counter(int last) { use(m[4].half[0]); (void)last; } // race-any read_count
SLOW counts_then(int last) { INC(m[4].half[0]); (void)last; } // race-any read_count
SLOW reads_both(int last) { use(m[5].all); (void)last; }
SLOW reads_this(int last) { use(m[5].half[1]); (void)last; }

// A read, then a write: two points of one thread, of which the other one's read races with the second.
SLOW reads_and_writes(int last)
{
	uint64_t x = m[6].all;
	m[6].all = x + (uint64_t)last; // race-any changed
}
SLOW reads_changed(int last) { use(m[6].all); (void)last; } // race-any changed

// Halves of one cell are nobody else's.
SLOW left(int last) { m[7].half[0] += (uint32_t)last; }
SLOW right(int last) { m[7].half[1] += (uint32_t)last; }

// Two instructions write beside each other: one point each, and of the first alone there is a race.
SLOW beside(int last)
{
	m[8].byte[2] = (uint8_t)last; // race-any beside
	m[8].byte[3] = (uint8_t)last;
}
SLOW reads_beside(int last) { use(m[8].byte[2]); (void)last; } // race-any beside
// One instruction writes them all: they are one point.
SLOW fills(int last)
{
	for (int i = 0; i < 8; i++)
		m[9].byte[i] = (uint8_t)last; // race-any filled
}
SLOW reads_filled(int last) { use(m[9].byte[5]); (void)last; } // race-any filled

// Not aligned: in one cell, in two, in three; and what lies behind it.
SLOW askew(int last) { AT(10, uint16_t, 1) = (uint16_t)last; } // race-any askew
SLOW reads_askew(int last) { use(m[10].byte[2]); (void)last; } // race-any askew
SLOW reads_behind_askew(int last) { use(m[10].byte[3]); (void)last; }
SLOW crosses(int last) { AT(11, uint32_t, 6) = (uint32_t)last; } // race-any crosses
SLOW reads_crossed(int last) { use(m[11].byte[9]); (void)last; } // race-any crosses
SLOW crosses_too(int last) { AT(12, uint32_t, 6) = (uint32_t)last; }
SLOW reads_behind_crossed(int last) { use(m[12].byte[10]); use(m[12].byte[5]); (void)last; }
SLOW reads_across(int last) { use(AT(13, uint64_t, 5)); (void)last; } // race-any read_across
SLOW writes_crossed(int last) { m[13].byte[12] = (uint8_t)last; } // race-any read_across
SLOW sixteen(int last) { _mm_storeu_si128((__m128i *)(m[14].byte + 4), _mm_set1_epi8((char)last)); } // race-any sixteen
SLOW reads_last_of_them(int last) { use(m[14].byte[19]); (void)last; } // race-any sixteen
SLOW sixteen_too(int last) { _mm_storeu_si128((__m128i *)(m[15].byte + 4), _mm_set1_epi8((char)last)); }
SLOW reads_behind_them(int last) { use(m[15].byte[20]); (void)last; }
SLOW sixteen_aligned(int last) { _mm_store_si128((__m128i *)m[16].byte, _mm_set1_epi8((char)last)); } // race-any aligned
SLOW writes_second_of_them(int last) { m[16].byte[8] = (uint8_t)last; } // race-any aligned

// Who holds the same lock does not race, whatever the round; the last time it is another lock.
static pthread_mutex_t lock[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
SLOW locked(int last)
{
	pthread_mutex_lock(&lock[0]);
	m[17].all += (uint64_t)last;
	pthread_mutex_unlock(&lock[0]);
}
SLOW locked_otherwise(int last)
{
	pthread_mutex_lock(&lock[last]);
	m[18].all = 2; // race-any locked
	pthread_mutex_unlock(&lock[last]);
}
SLOW locked_once(int last)
{
	pthread_mutex_lock(&lock[0]);
	m[18].all = (uint64_t)last; // race-any locked
	pthread_mutex_unlock(&lock[0]);
}

// One instruction, by two calls of one function: it is the second call's access that races, though the stack looks the same but for one word.
SLOW touches(void);
SLOW by_two_calls(int last)
{
	if (!last) {
		touches();
		use(1);
	} else {
		touches(); // race-any by_two_calls
		use(2);
	}
}
SLOW reads_touched(int last) { use(m[19].all); (void)last; } // race-any by_two_calls

// Blocks beside one that is freed, so that a cell of the same page and group is accessed all the time; and then that one.
enum { BLOCKS = 8, FREED = 3 };
static char *block[BLOCKS];
SLOW uses_block(char *p) { (*(volatile char *)p)++; } // uaf block
SLOW uses(int last)
{
	for (int i = 0; i < BLOCKS; i++)
		if (i != FREED || last)
			uses_block(block[i]);
}
SLOW nothing(int last) { (void)last; }

int main(void)
{
	again(writes, reads);
	again(reads_first, writes_then);
	again(writes_too, writes_as_well);
	again(counts, reads_count);
	again(reads_counter, counts_then);
	again(reads_both, reads_this);
	again(reads_and_writes, reads_changed);
	again(left, right);
	again(beside, reads_beside);
	again(fills, reads_filled);
	again(askew, reads_askew);
	memset((void *)&m[10], 0, sizeof m[10]);
	again(askew, reads_behind_askew);
	again(crosses, reads_crossed);
	again(crosses_too, reads_behind_crossed);
	again(reads_across, writes_crossed);
	again(sixteen, reads_last_of_them);
	again(sixteen_too, reads_behind_them);
	again(sixteen_aligned, writes_second_of_them);
	again(locked, locked);
	again(locked_once, locked_otherwise);
	again(by_two_calls, reads_touched);
	for (int i = 0; i < BLOCKS; i++)
		block[i] = malloc(16);
	free(block[FREED]); // uaf block
	again(uses, nothing);
	return 0;
}

#line 1 "elsewhere.h"
SLOW touches(void) { m[19].all = 1; }
