/* bank.c: the demo. Two accounts, each with a lock, and transfers that lock the two in the order of their arguments.
 *
 *   bank lucky    the transfers happen one after the other: the program ends, and the inversion is there all the same
 *   bank unlucky  the transfers meet: both threads wait for ever
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>

struct account {
	pthread_mutex_t lock;
	long balance;
};

static struct account alice = {PTHREAD_MUTEX_INITIALIZER, 100}, bob = {PTHREAD_MUTEX_INITIALIZER, 100};
static pthread_barrier_t meet; /* unlucky: both hold their first lock */
static sem_t first_done;       /* lucky: the second transfer begins when the first has ended */
static int unlucky;

static void transfer(struct account *from, struct account *to, long amount)
{
	pthread_mutex_lock(&from->lock);
	if (unlucky)
		pthread_barrier_wait(&meet);
	pthread_mutex_lock(&to->lock);
	from->balance -= amount;
	to->balance += amount;
	pthread_mutex_unlock(&to->lock);
	pthread_mutex_unlock(&from->lock);
}

static void *alice_pays(void *arg)
{
	transfer(&alice, &bob, 10);
	sem_post(&first_done);
	return arg;
}

static void *bob_pays(void *arg)
{
	if (!unlucky)
		sem_wait(&first_done);
	transfer(&bob, &alice, 25);
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t a, b;
	unlucky = argc > 1 && strcmp(argv[1], "unlucky") == 0;
	pthread_barrier_init(&meet, NULL, 2);
	sem_init(&first_done, 0, 0);
	pthread_create(&a, NULL, alice_pays, NULL);
	pthread_create(&b, NULL, bob_pays, NULL);
	pthread_setname_np(a, "alice");
	pthread_setname_np(b, "bob");
	pthread_join(a, NULL);
	pthread_join(b, NULL);
	printf("alice has %ld, bob has %ld\n", alice.balance, bob.balance);
	return 0;
}
