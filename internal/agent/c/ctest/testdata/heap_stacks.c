// argv[1] blocks, each allocated on a path of calls of its own. With "use" some of them, from all over, hold a mutex that is unlocked though free: a line each says
// in which process it is done, where the block is and on what path it was allocated, and it is done by the process itself, by a child and by a child's child.
#include <alloca.h>
#include <execinfo.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEPTH = 16, FRAMES = 18, USED = 120 };
struct block { pthread_mutex_t lock; void *pcs[64]; int n; };
static struct block **blocks;

static __attribute__((noinline)) void leaf(int i)
{
	volatile char *room = alloca(16 + 16 * (i % 1021)); // nothing allocated twice in a row at one depth of the stack: each is walked
	*room = 0;
	blocks[i] = malloc(sizeof(struct block));
	blocks[i]->n = backtrace(blocks[i]->pcs, 64);
	*room = 1;
}
static void right(int i, unsigned bits, int depth);
static __attribute__((noinline)) void left(int i, unsigned bits, int depth)
{
	depth == 0 ? leaf(i) : bits & 1 ? right(i, bits >> 1, depth - 1) : left(i, bits >> 1, depth - 1);
	__asm__ volatile("");
}
static __attribute__((noinline)) void right(int i, unsigned bits, int depth)
{
	depth == 0 ? leaf(i) : bits & 1 ? right(i, bits >> 1, depth - 1) : left(i, bits >> 1, depth - 1);
	__asm__ volatile("");
}

static void use(int n, int first)
{
	for (int k = first; k < USED; k += 3) {
		struct block *b = blocks[(long)k * (n - 1) / (USED - 1)];
		fprintf(stderr, "%d %lx", first + 1, (long)b);
		for (int j = 1; j < b->n && j <= FRAMES; j++)
			fprintf(stderr, " %lx", (long)b->pcs[j]);
		fprintf(stderr, "\n");
		pthread_mutex_init(&b->lock, NULL);
		pthread_mutex_unlock(&b->lock);
	}
}

int main(int argc, char **argv)
{
	int n = atoi(argv[1]);
	blocks = malloc(n * sizeof *blocks);
	for (int i = 0; i < n; i++)
		left(i, (unsigned)i, DEPTH);
	if (argc > 2 && strcmp(argv[2], "use") == 0) {
		use(n, 0);
		if (fork() == 0) {
			use(n, 1);
			if (fork() == 0) {
				use(n, 2);
				_exit(0);
			}
			wait(NULL);
			_exit(0);
		}
		wait(NULL);
	}
	puts("done");
	return 0;
}
