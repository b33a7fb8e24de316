// A thread sets a pointer and asks another one to change it, by plain loads and stores; then it writes where the pointer points, which is never its first value.
#include <pthread.h>
#include <sched.h>
#include <stddef.h>

enum { ROUNDS = 40 };
struct object {
	long value;
};
static struct object first, second;
static struct object *volatile current;
static volatile long asked, answered;

__attribute__((noinline)) static long work(volatile long *own, long n)
{
	for (long i = 0; i < n; i++)
		own[i & 3] += i;
	return own[0];
}

static void *asks(void *p)
{
	long own[4] = {0};
	for (long i = 1; i <= ROUNDS; i++) {
		work(own, 20);
		current = &first; // race
		asked = i; // race
		while (answered < i) // race
			;
		current->value++; // race
	}
	return p;
}

static void *answers(void *p)
{
	for (long i = 1; i <= ROUNDS; i++) {
		while (asked < i) // race
			sched_yield();
		current = &second; // race
		answered = i; // race
	}
	return p;
}

static void *owns(void *p)
{
	long own[4] = {0};
	for (int i = 0; i < ROUNDS; i++) {
		work(own, 20);
		first.value++;
	}
	return p;
}

int main(void)
{
	pthread_t t[3];
	pthread_create(&t[0], NULL, asks, NULL);
	pthread_create(&t[1], NULL, answers, NULL);
	pthread_create(&t[2], NULL, owns, NULL);
	for (int i = 0; i < 3; i++)
		pthread_join(t[i], NULL);
	return 0;
}
