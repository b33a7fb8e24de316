// Words that threads wait for by futexes. Its arguments: what, how many rounds.
// slept: who finds a word taken says that it waits, if nobody has said so, and sleeps; who has slept takes it with others. So a thread goes by what it has in a register, which it has from what it had loaded. In a recording it loads soon. Executed again it comes there late: the many changes of another word that come before take a turn each.
// full: each change is one of many; who finds that a word has changed looks again by another instruction.
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { WAITS = 1, TAKEN = 2, ONE = 4, TURNS = 2000, OTHERS = 8 /* so many threads that what they had done is not noted at each wait */, WORDS = 2, SLEEP_NS = 3000000 };

static atomic_uint word, turns, words[WORDS];
static unsigned rounds;
static sem_t go[2], done, never;

static void wait_for(atomic_uint *w, unsigned value) { syscall(SYS_futex, w, FUTEX_WAIT_PRIVATE, value, NULL, NULL, 0); }
static void wake(atomic_uint *w) { syscall(SYS_futex, w, FUTEX_WAKE_PRIVATE, 1 << 30, NULL, NULL, 0); }

static __attribute__((noinline)) void take(void)
{
	int slept = 0;
	unsigned v = atomic_load(&word);
	for (;;) {
		if (!(v & WAITS)) {
			if (!(v & TAKEN) || slept) {
				if (atomic_compare_exchange_strong(&word, &v, v + ONE))
					return;
				continue;
			}
			if (!atomic_compare_exchange_strong(&word, &v, v | WAITS))
				continue;
			v |= WAITS;
		}
		wait_for(&word, v);
		slept = 1;
		v = atomic_load(&word);
	}
}

static __attribute__((noinline)) void change(atomic_uint *w, unsigned and, unsigned or)
{
	unsigned v = atomic_load(w);
	if (v == -1u)
		wait_for(w, v);
	while (!atomic_compare_exchange_strong(w, &v, (v & and) | or))
		;
}

static __attribute__((noinline)) void turn(void)
{
	if (atomic_fetch_add(&turns, 1) == -1u)
		wait_for(&turns, -1u);
}

static void *slept(void *arg)
{
	for (unsigned i = 0; i < rounds; i++) {
		sem_wait(&go[arg != NULL]);
		for (int k = 0; k < TURNS; k++)
			turn();
		if (arg)
			take();
		sem_post(&done);
	}
	return NULL;
}

static void *idle(void *arg)
{
	sem_wait(&never);
	return arg;
}

static void lets_sleep(void)
{
	pthread_t t[2 + OTHERS];
	for (int i = 0; i < 2 + OTHERS; i++)
		pthread_create(&t[i], NULL, i < 2 ? slept : idle, i == 1 ? &t : NULL);
	for (unsigned i = 0; i < rounds; i++) {
		const struct timespec time = {0, SLEEP_NS};
		change(&word, -1u, TAKEN | WAITS);
		sem_post(&go[0]);
		sem_post(&go[1]);
		nanosleep(&time, NULL);
		/* Who comes late says again that it waits. */
		for (int left = 2; left;) {
			change(&word, ~WAITS, 0);
			wake(&word);
			struct timespec until;
			clock_gettime(CLOCK_REALTIME, &until);
			until.tv_nsec += SLEEP_NS;
			until.tv_sec += until.tv_nsec / 1000000000;
			until.tv_nsec %= 1000000000;
			left -= sem_timedwait(&done, &until) == 0;
		}
	}
	for (int i = 0; i < OTHERS; i++)
		sem_post(&never);
	for (int i = 0; i < 2 + OTHERS; i++)
		pthread_join(t[i], NULL);
}

static __attribute__((noinline)) void raise_again(atomic_uint *w)
{
	unsigned v = atomic_load(w);
	for (;;) {
		if (v == -1u)
			wait_for(w, v);
		if (atomic_compare_exchange_strong(w, &v, v + 1))
			break;
	}
}

static __attribute__((noinline)) void raise(atomic_uint *w)
{
	unsigned v = atomic_load(w);
	if (v == -1u)
		wait_for(w, v);
	if (!atomic_compare_exchange_strong(w, &v, v + 1))
		raise_again(w);
}

static void *full(void *arg)
{
	for (unsigned i = 0; i < rounds; i++)
		raise(&words[i % WORDS]);
	return arg;
}

static void fills(void)
{
	pthread_t t[2];
	for (int i = 0; i < 2; i++)
		pthread_create(&t[i], NULL, full, NULL);
	for (int i = 0; i < 2; i++)
		pthread_join(t[i], NULL);
}

int main(int argc, char **argv)
{
	rounds = argc > 2 ? (unsigned)atoi(argv[2]) : 0;
	if (strcmp(argv[1], "full"))
		lets_sleep();
	else
		fills();
	printf("%u\n", atomic_load(&word) + atomic_load(&turns) + atomic_load(&words[0]) + atomic_load(&words[1]));
	return 0;
}
