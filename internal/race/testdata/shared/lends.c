// Pages that one thread alone uses for long are lent to it, and nobody is told what it does there until another touches them. What it did before that is known still, so a race with it is found each time, though the
// thread that had the page does nothing more. By bytes of one page: plain writes against a read and a write, reads against a write; of one whose owner is long gone; of a variable, and of what the program has mapped; and of one whose owner is gone and had
// released something, where who comes second has its key by then. And a block that the one frees who had its page, and reads.
// Who comes second waits without ordering anything (by a sleep), and first touches another byte of that page, by which it is shared again.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { KINDS = 7, WORDS = 512, ROUNDS = 400, RELEASES = 50 };

struct page { volatile long used[WORDS]; };

static struct page *page[KINDS], variable __attribute__((aligned(4096))); // each a page of its own
static long sums[2 * KINDS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; // the first's alone

__attribute__((noinline)) static void use(struct page *p, int writes)
{
	long sum = 0;
	for (int r = 0; r < ROUNDS; r++) // the first half, over and over; in between an order that nobody else takes part in, so that the same accesses are news
		for (int i = 80; i < WORDS / 2; i++) {
			if (writes)
				p->used[i] = r;
			else
				sum += p->used[i];
		}
	sums[0] = sum;
}

#define KIND(n, first, second) \
	static __attribute__((noinline)) void kind##n(struct page *p, int comes_second) { volatile long *at = &p->used[70 + n]; if (comes_second) { second; } else { first; } }

KIND(0, *at = 1, sums[1] = *at)     // race-mov reads
KIND(1, *at = 1, *at = 2)           // race-mov writes
KIND(2, sums[2] = *at, *at = 3)     // race-mov after
KIND(3, *at = 1, sums[3] = *at)     // race-mov gone
KIND(4, *at = 1, sums[4] = *at)     // race-mov variable
KIND(5, *at = 1, *at = 2)           // race-mov mapped
KIND(6, *at = 1, sums[5] = *at)     // race-mov key

static void (*const kind[KINDS])(struct page *, int) = {kind0, kind1, kind2, kind3, kind4, kind5, kind6};

// Which orders nothing: how many threads there are is asked of the kernel.
static void others_ended(void)
{
	struct stat s;
	while (stat("/proc/self/task", &s) == 0 && s.st_nlink > 2 + 2)
		usleep(1000);
}

static void release_often(void)
{
	for (int i = 0; i < RELEASES; i++) {
		pthread_mutex_lock(&lock);
		pthread_mutex_unlock(&lock);
		usleep(2000);
	}
}

static void *first(void *arg)
{
	int n = (int)(intptr_t)arg;
	kind[n](page[n], 0);
	use(page[n], n != 2);
	if (n == 6)
		release_often();
	else if (n != 3)
		usleep(300000); // it lives, and does nothing
	return NULL;
}

static void *second(void *arg)
{
	int n = (int)(intptr_t)arg;
	volatile char *own;
	if (n == 6) {
		others_ended();
		*(own = malloc(100)) = 1; // it has a key from here on
		free((void *)own);
	} else
		usleep(150000);
	sums[KINDS + n] = page[n]->used[300]; // nobody has touched that
	kind[n](page[n], 1);
	return NULL;
}

static void *freed(void *arg)
{
	struct page *p = arg;
	use(p, 1);
	free(p); // uaf freed
	sums[6] = p->used[100]; // uaf freed
	return NULL;
}

int main(void)
{
	pthread_t t[2];
	for (int n = 0; n < KINDS; n++) {
		page[n] = n == 4 ? &variable : n == 5 ? mmap(NULL, sizeof *page[n], PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : aligned_alloc(4096, sizeof *page[n]);
		for (int i = 0; i < WORDS; i++)
			page[n]->used[i] = 0;
	}
	for (int n = 0; n < KINDS; n++) {
		pthread_create(&t[0], NULL, first, (void *)(intptr_t)n);
		pthread_create(&t[1], NULL, second, (void *)(intptr_t)n);
		pthread_join(t[0], NULL);
		pthread_join(t[1], NULL);
	}
	pthread_create(&t[0], NULL, freed, aligned_alloc(4096, sizeof(struct page)));
	pthread_join(t[0], NULL);
	puts("done");
	return 0;
}
