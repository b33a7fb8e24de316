// One instruction, from the same place on the stack, in four ways: two functions that call it, and two that call each of these. Barriers order all but the last round. (The comments in assembler keep gcc from making one of two.)
#include "../run.h"

enum { ROUNDS = 202 }; // in the round before the last it is right, too, but near
static pthread_barrier_t turn;
static int word;

static void touch(void)
{
	word++; // race: touched
	__asm__ volatile("");
}

static void left(void)
{
	touch();
	__asm__ volatile("# left");
}

static void right(void)
{
	touch(); // way: right
	__asm__ volatile("# right");
}

static void near_one(void (*f)(void))
{
	f();
	__asm__ volatile("# near_one");
}

static void far_one(void (*f)(void))
{
	f(); // way: far
	__asm__ volatile("# far_one");
}

static void *ones(void *p)
{
	for (int i = 1; i <= ROUNDS; i++) {
		int way = i == ROUNDS ? 3 : i % 4;
		(way & 2 ? far_one : near_one)(way & 1 ? right : left);
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
		word--; // race: touched
		if (i < ROUNDS)
			pthread_barrier_wait(&turn);
	}
	return p;
}

int main(void)
{
	pthread_barrier_init(&turn, 0, 2);
	both(ones, twos);
	return 0;
}
