/* heap.c: uses brk and malloc as programs do, and says on stderr where brk began. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static uint64_t sum;

static void use(char *p, size_t n)
{
	memset(p, (int)n, n);
	for (size_t i = 0; i < n; i += 4096)
		sum = sum * 31 + (uint8_t)p[i];
}

/* Grows by a MiB each time, and all that it was given before is behind what came first. */
static void grow(int times)
{
	char *first = sbrk(0), *end = first;
	for (int i = 0; i < times; i++) {
		char *p = sbrk(1 << 20);
		if (p == (void *)-1 || p != end) {
			printf("not contiguous at %d\n", i);
			return;
		}
		use(p, 1 << 20);
		end = p + (1 << 20);
	}
	if (brk(first) || sbrk(0) != first || sbrk(4096) != first || *first)
		printf("not given back\n");
	brk(first);
}

int main(void)
{
	static char *blocks[4000];
#ifdef LARGE
	static char zeros[LARGE];
	use(zeros, 1 << 20);
#endif
	fprintf(stderr, "%#lx", (long)sbrk(0));
	grow(64);
	for (int i = 0; i < 4000; i++)
		use(blocks[i] = malloc((size_t)i * 7), (size_t)i * 7);
	for (int i = 0; i < 4000; i += 2)
		free(blocks[i]);
	fflush(stdout);
	if (fork() == 0) {
		grow(8);
		printf("child %lx\n", sum);
		fflush(stdout);
		_exit(0);
	}
	wait(NULL);
	grow(8);
	char *big = malloc(40u << 20);
	use(big, 40u << 20);
	free(big);
	printf("%lx\n", sum);
	return 0;
}
