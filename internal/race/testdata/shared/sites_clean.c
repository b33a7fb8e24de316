// Blocks of allocations whose blocks threads share: what one fills and another changes under a lock, gives back, enlarges or hands on, in several sizes and by all functions that allocate, so that places are used again by whom they were not; what
// their owner does before anybody else knows of them; and a child of fork that has some of them, and makes its own. Contents are as natively.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, ROUNDS = 60, SLOTS = 16 };

struct item { size_t n; uint32_t tag; unsigned char byte[]; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct item *slot[SLOTS]; // under the lock
static long handed;

static void *aligned(size_t to, size_t n)
{
	void *p = NULL;
	if (n % 3 == 0 ? posix_memalign(&p, to, n) != 0 : !(p = aligned_alloc(to, (n + to - 1) & -to)))
		abort();
	if ((uintptr_t)p % to)
		abort();
	return p;
}

// A block that has grown twice, the second time a little, and shrunk: what was in it is in it still.
static void *grown(size_t n)
{
	unsigned char *p = realloc(NULL, n / 3 + 1);
	for (size_t k = 0; k < n / 3 + 1; k += 97)
		p[k] = (unsigned char)(k * 7);
	p = realloc(p, n);
	p = realloc(p, n + 100);
	p = realloc(p, n);
	for (size_t k = 0; k < n / 3 + 1; k += 97)
		if (p[k] != (unsigned char)(k * 7))
			abort();
	return p;
}

__attribute__((noinline)) static struct item *make(unsigned i)
{
	static const size_t sizes[] = {24, 100, 700, 5000, 40000, 600000};
	size_t n = sizes[i % 6];
	struct item *p = i & 8 ? calloc(1, sizeof *p + n) : i % 5 == 0 ? aligned(64 << i % 7, sizeof *p + n) : i % 5 == 1 ? grown(sizeof *p + n) : malloc(sizeof *p + n);
	for (size_t k = 0; i & 8 && k < n; k += 13)
		if (p->byte[k])
			abort();
	p->n = n;
	p->tag = i;
	memset(p->byte, (int)(i & 255), n);
	for (size_t k = 0; k < n; k += 97)
		p->byte[k] = (unsigned char)(i + k);
	return p;
}

static void check(const struct item *p)
{
	for (size_t k = 0; k < p->n; k += 97)
		if (p->byte[k] != (unsigned char)(p->tag + k))
			abort();
}

static void *work(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg;
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct item *mine = make(me * 5 + i), *other;
		pthread_mutex_lock(&lock);
		unsigned at = (me + i * 3) % SLOTS;
		other = slot[at];
		slot[at] = mine;
		handed += other != NULL;
		if (other) {
			check(other);
			other->byte[1] ^= 1;
			other->byte[1] ^= 1;
		}
		if (slot[(at + 1) % SLOTS])
			check(slot[(at + 1) % SLOTS]);
		pthread_mutex_unlock(&lock);
		if (other && i % 3 == 0) {
			other = realloc(other, sizeof *other + other->n + 500);
			check(other);
		}
		free(other);
	}
	return NULL;
}

int main(void)
{
	pthread_t t[THREADS];
	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&t[i], NULL, work, (void *)(uintptr_t)i) != 0)
			return 1;
	for (int i = 0; i < 5; i++) {
		pthread_mutex_lock(&lock);
		pid_t child = fork();
		if (child == 0) {
			for (int k = 0; k < SLOTS; k++)
				if (slot[k])
					check(slot[k]);
			for (unsigned k = 0; k < 30; k++) {
				struct item *p = make(k);
				check(p);
				free(p);
			}
			for (int k = 0; k < SLOTS; k++)
				free(slot[k]);
			_exit(7);
		}
		pthread_mutex_unlock(&lock);
		int status;
		if (child < 0 || waitpid(child, &status, 0) != child || status != 7 << 8)
			abort();
		usleep(2000);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	for (int k = 0; k < SLOTS; k++)
		free(slot[k]);
	printf("%d handed on\n", handed > 0);
	return 0;
}
