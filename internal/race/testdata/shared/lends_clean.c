// Sharing that ends and begins again, always in order: an array that main fills and threads work upon in parts; a page that two threads work upon in turns, handed over by a lock, a semaphore, or a flag in the
// page itself, which an atomic instruction or (as the debug information says) an atomic store sets; a page that is freed while it is one thread's, and used by another; the same with a variable. Results are what they are natively.
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum { THREADS = 3, PART = 3000, SWEEPS = 40, WORDS = 480, TURNS = 6, WORK = 20 };
enum hand { LOCK, SEM, EXCHANGE, STORE, HANDS };

struct page {
	long words[WORDS];
	_Atomic long turn;
	char rest[4096 - (WORDS + 1) * sizeof(long)];
};
struct shared { struct page *page; sem_t sem[2]; enum hand by; };
struct player { struct shared *of; long me; };

static long *array, total;
static struct page variable __attribute__((aligned(4096)));
static pthread_barrier_t all;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t moved = PTHREAD_COND_INITIALIZER;

static void *part(void *arg)
{
	long n = (long)(intptr_t)arg, sum = 0;
	for (int s = 0; s < SWEEPS; s++) {
		long *from = array + n * PART; // once in a while another's
		if (s % 16 == 15)
			from = array + (n + 1) % THREADS * PART;
		for (int i = 0; i < PART; i++)
			from[i] = from[i] * 3 + s;
		for (int i = 0; i < PART; i++)
			sum += from[i] & 0xff;
		if (s % 16 >= 14)
			pthread_barrier_wait(&all);
	}
	__atomic_fetch_add(&total, sum, __ATOMIC_RELAXED);
	return NULL;
}

static void await(struct shared *s, long me, long turn)
{
	switch (s->by) {
	case LOCK:
		pthread_mutex_lock(&lock);
		while (s->page->turn != turn)
			pthread_cond_wait(&moved, &lock);
		pthread_mutex_unlock(&lock);
		break;
	case SEM:
		sem_wait(&s->sem[me]);
		break;
	default:
		while (atomic_load_explicit(&s->page->turn, memory_order_acquire) != turn)
			sched_yield();
	}
}

static void pass(struct shared *s, long me, long turn)
{
	switch (s->by) {
	case LOCK:
		pthread_mutex_lock(&lock);
		s->page->turn = turn;
		pthread_cond_broadcast(&moved);
		pthread_mutex_unlock(&lock);
		break;
	case SEM:
		sem_post(&s->sem[!me]);
		break;
	case EXCHANGE:
		atomic_exchange(&s->page->turn, turn);
		break;
	default:
		atomic_store_explicit(&s->page->turn, turn, memory_order_release);
	}
}

static void *play(void *arg)
{
	struct player *p = arg;
	for (long turn = p->me; turn < TURNS; turn += 2) {
		await(p->of, p->me, turn);
		long *w = p->of->page->words;
		for (int k = 0; k < WORK; k++)
			for (int i = 1; i < WORDS; i++)
				w[i] = w[i] * 5 + w[i - 1] + turn;
		pass(p->of, p->me, turn + 1);
	}
	return NULL;
}

static long last(struct page *p)
{
	long sum = 0;
	for (int i = 0; i < WORDS; i++)
		sum += p->words[i];
	return sum;
}

int main(void)
{
	pthread_t t[THREADS];
	array = malloc(THREADS * PART * sizeof *array);
	pthread_barrier_init(&all, NULL, THREADS);
	for (int i = 0; i < THREADS * PART; i++)
		array[i] = i;
	for (long i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, part, (void *)(intptr_t)i);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	for (int i = 0; i < THREADS * PART; i++)
		total += array[i];
	free(array);
	printf("%ld\n", total);
	for (int by = 0; by < 2 * HANDS; by++) {
		struct shared s = {.by = by % HANDS, .page = by < HANDS ? aligned_alloc(4096, sizeof *s.page) : &variable};
		struct player p[2] = {{&s, 0}, {&s, 1}};
		for (int i = 0; i < WORDS; i++)
			s.page->words[i] = i;
		s.page->turn = 0;
		sem_init(&s.sem[0], 0, 1);
		sem_init(&s.sem[1], 0, 0);
		for (int i = 0; i < 2; i++)
			pthread_create(&t[i], NULL, play, &p[i]);
		for (int i = 0; i < 2; i++)
			pthread_join(t[i], NULL);
		printf("%d %ld\n", by, last(s.page));
		if (by < HANDS)
			free(s.page);
	}
	return 0;
}
