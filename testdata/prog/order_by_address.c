// transfer(a,b) and transfer(b,a), which take the two locks by their addresses; and again with a try of the second that backs off.
// ripstop: verdict none
#include <pthread.h>
#include <sched.h>
#include <stdio.h>

enum { ACCOUNTS = 6, THREADS = 4, ROUNDS = 300 };

static struct account {
	pthread_mutex_t lock;
	long money;
} ordered[ACCOUNTS], tried[ACCOUNTS];

static void transfer(struct account *from, struct account *to)
{
	struct account *first = from < to ? from : to, *second = from < to ? to : from;
	pthread_mutex_lock(&first->lock);
	pthread_mutex_lock(&second->lock);
	from->money--;
	to->money++;
	pthread_mutex_unlock(&first->lock);
	pthread_mutex_unlock(&second->lock);
}

static void transfer_or_back_off(struct account *from, struct account *to)
{
	struct account *first = from, *second = to;
	for (;;) {
		pthread_mutex_lock(&first->lock);
		if (pthread_mutex_trylock(&second->lock) == 0)
			break;
		pthread_mutex_unlock(&first->lock);
		struct account *other = first;
		first = second;
		second = other;
		sched_yield();
	}
	from->money--;
	to->money++;
	pthread_mutex_unlock(&second->lock);
	pthread_mutex_unlock(&first->lock);
}

static void *work(void *arg)
{
	for (long i = (long)arg; i < (long)arg + ROUNDS; i++) {
		long from = i % ACCOUNTS, to = (from + 1 + i / ACCOUNTS % (ACCOUNTS - 1)) % ACCOUNTS;
		transfer(&ordered[from], &ordered[to]);
		transfer_or_back_off(&tried[from], &tried[to]);
	}
	return NULL;
}

int main(void)
{
	pthread_t t[THREADS];
	for (int i = 0; i < ACCOUNTS; i++) {
		pthread_mutex_init(&ordered[i].lock, NULL);
		pthread_mutex_init(&tried[i].lock, NULL);
	}
	for (long i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, work, (void *)(7 * i));
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	long sum = 0;
	for (int i = 0; i < ACCOUNTS; i++)
		sum += ordered[i].money + tried[i].money;
	printf("%ld\n", sum);
	return 0;
}
