// Races for variables on stacks: what lies there is named by the frame, and what is not certain is not named. TestSlots has the names.
#include <pthread.h>
#include <stdio.h>

struct pair {
	int first;
	long second[3];
};

static void *bump(void *arg)
{
	((struct pair *)arg)->second[1]++; // race-any others
	return NULL;
}

// Two threads race for a variable of a third one, which waits.
static void others(void)
{
	struct pair pair = {1, {2, 3, 4}};
	pthread_t a, b;
	pthread_create(&a, NULL, bump, &pair);
	pthread_create(&b, NULL, bump, &pair);
	pthread_join(a, NULL);
	pthread_join(b, NULL);
}

static void *set(void *arg)
{
	*(int *)arg = 7; // race-any mine
	return NULL;
}

// A thread races for its own variable. Which of the two comes later is open.
static void mine(void)
{
	volatile int counter = 41;
	pthread_t a;
	pthread_create(&a, NULL, set, (void *)&counter);
	counter = 40; // race-any mine
	pthread_join(a, NULL);
}

// A worker that one function made is handed a variable of another, which lies at the same place of the stack and is called from the same place: it is not the first one's.
static pthread_t worker;
static void *job;

static void *work(void *arg)
{
	struct pair *p;
	(void)arg;
	while (!(p = __atomic_exchange_n(&job, NULL, __ATOMIC_ACQ_REL)))
		;
	p->second[1] = 9; // race-any handed
	return NULL;
}

static void make(void)
{
	struct pair never = {1, {2, 3, 4}};
	__asm__ volatile("" : : "r"(&never) : "memory");
	pthread_create(&worker, NULL, work, NULL);
}

static void hand(void)
{
	struct pair handed = {1, {2, 3, 4}};
	__atomic_exchange_n(&job, &handed, __ATOMIC_ACQ_REL);
	((volatile struct pair *)&handed)->second[1] = 5; // race-any handed
	pthread_join(worker, NULL);
}

int main(void)
{
	void (*volatile step[])(void) = {make, hand};
	others();
	mine();
	for (unsigned i = 0; i < sizeof step / sizeof *step; i++)
		step[i]();
	puts("done");
}
